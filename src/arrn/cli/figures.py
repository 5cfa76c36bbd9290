"""`arrn figures`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arrn.cli.console import say
from arrn.errors import ArrnError

if TYPE_CHECKING:  # help and completion do not wait for torch
    from arrn.figures import Drawing


FORMATS = (".png", ".svg")
DEFAULT_RESULTS = Path("results")


def figures(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="robustness, efficiency, generalization, ablation, tree, frontier, tables, claims, skipping, pyramid, "
            "features, bandwidth [default: all]."
        ),
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="The folder that `arrn reproduce` wrote [default: results, if it exists].")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for the figures.")] = Path("figures"),
    network: Annotated[
        Path | None,
        typer.Option(
            help="The network that features and skipping show: a finished run [default: an untrained arrn_small]."
        ),
    ] = None,
    image: Annotated[
        Path | None,
        typer.Option(help="The image for skipping, pyramid, features and bandwidth [default: an image of the sample]."),
    ] = None,
) -> None:
    """Draw the paper's figures as PNG and SVG, and tables as Markdown, from the existing results.

    The command names what a figure lacks: runs that were not made, times that were not measured. The figures skipping,
    pyramid, features and bandwidth need no results. The same results give the same files, byte for byte.

    Examples:

    arrn figures

    arrn figures robustness tree --results results --out docs/images

    arrn figures features --network runs/first --image cat.jpg
    """
    from arrn.experiments import read_results
    from arrn.figures import choose_figures, draw_figures, open_subject

    chosen = choose_figures(names or [])
    folder = results or DEFAULT_RESULTS
    found = read_results(folder) if results is not None or folder.is_dir() else []
    for drawing in draw_figures(chosen, found, partial(open_subject, image, network)):
        say(_save(drawing, out))


def _write(drawing: Drawing, out: Path) -> list[Path]:
    """Writes the picture, or the page of tables, if there is one; returns the files."""
    from arrn.figures import save_figure
    from arrn.writing import write_atomically

    if drawing.text is not None:
        page = out / f"{drawing.stem}.md"
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(page, drawing.text.encode())
        return [page]
    if drawing.figure is None:
        return []
    paths = [out / f"{drawing.stem}{suffix}" for suffix in FORMATS]
    for path in paths:
        save_figure(drawing.figure, path)
    return paths


def _save(drawing: Drawing, out: Path) -> str:
    """Writes the files of a figure; returns what is to be told of it."""
    try:
        paths = _write(drawing, out)
    except OSError as error:
        raise ArrnError(f"cannot write to {out}: {error.strerror or error}") from error
    if not paths:
        return f"{drawing.stem}: not drawn, since these are missing: {', '.join(drawing.lacking) or 'results'}"
    lacking = f"; missing: {', '.join(drawing.lacking)}" if drawing.lacking else ""
    return f"{drawing.stem}: {', '.join(map(str, paths))}{lacking}"
