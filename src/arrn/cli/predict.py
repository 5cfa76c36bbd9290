"""`arrn predict`."""

from __future__ import annotations

import csv as csv_format
import io
import json as json_format
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from arrn.cli.console import MaxPixels, console, say, shown, shown_lines
from arrn.cli.opening import open_predictor
from arrn.errors import ArrnError, plain
from arrn.hub import hub_address
from arrn.runtime.inputs import answers_to_json, find_inputs, why

if TYPE_CHECKING:  # help and completion do not wait for torch
    from arrn.runtime import Answer, Predictor


def predict(
    folder: Annotated[Path, typer.Argument(help="A finished run, a folder that arrn.save wrote, or an export.")],
    inputs: Annotated[
        list[str],
        typer.Argument(help="Images, wav files, or npy files of volumes, of any sizes; folders of them; or patterns."),
    ],
    *,
    top: Annotated[int, typer.Option(min=1, help="How many classes to show for each input.")] = 1,
    json: Annotated[
        str | None, typer.Option(help="Write the answers to this JSON file; - for standard output.")
    ] = None,
    csv: Annotated[str | None, typer.Option(help="Write the answers to this CSV file; - for standard output.")] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            help="The cascade with levels and a threshold for this average cost, in million multiply-adds for an "
            "input; needs `arrn evaluate --cascade` once."
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="The cascade over all levels: start at the lowest level, and climb until a probability "
            "reaches this (0 to 1)."
        ),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="For sizes between two grids: exact or cheap [default: the network's own].")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    max_pixels: MaxPixels = None,
    aspect: Annotated[
        str | None,
        typer.Option(help="How to fit images of other proportions: stretch, pad or crop [default: as in training]."),
    ] = None,
) -> None:
    """Classify pictures, sounds or volumes, each at the level of the network that fits its size.

    A folder stands for all files in it, and in the folders below, that the network can read. A file that cannot be read
    does not stop the others: it is named at the end, and the exit status is 2.

    Examples:

    arrn predict runs/first cat.jpg

    arrn predict runs/first pictures "more/**/*.png" --top 5 --json answers.json

    arrn predict runs/digits seven.wav --csv -
    """
    if json == csv == "-":
        raise ArrnError("only one of --json and --csv can go to standard output")
    predictor = open_predictor(folder, device=device, policy=policy, max_pixels=max_pixels, aspect=aspect)
    quiet = "-" in (json, csv)
    if policy is not None and not predictor.adapts and not quiet:
        say(f"{folder} holds a network without levels to skip: --policy has no effect")
    names: list[str] = []

    def found() -> Iterator[Path | ArrnError]:
        for name, item in find_inputs(inputs, predictor.ndim):
            names.append(name)
            yield item

    answers = list(predictor.stream(found(), top=top, budget=budget, threshold=threshold))
    told = list(zip(names, answers, strict=True))
    bad = [answer for answer in answers if isinstance(answer, ArrnError)]
    if json is not None:
        _write(json, _as_json(told, folder, predictor))
    if csv is not None:
        _write(csv, _as_csv(told, top))
    good = [(name, answer) for name, answer in told if not isinstance(answer, ArrnError)]
    if not quiet:
        if good:
            _show(good, predictor, cascade=budget is not None or threshold is not None)
        elif len(bad) == 1:
            raise bad[0]
        for problem in bad:
            say(f"not read: {problem}")
    if bad:
        raise ArrnError(f"{len(bad)} of {len(told)} files could not be read")


_Told = Sequence[tuple[str, "Answer | ArrnError"]]


def _write(target: str, text: str) -> None:
    from arrn.writing import write_atomically, writing_to

    if target == "-":
        sys.stdout.write(text)
        return
    with writing_to(Path(target)):
        write_atomically(Path(target), text.encode("utf-8", "backslashreplace"))


def _as_json(told: _Told, folder: Path, predictor: Predictor) -> str:
    document = {
        "network": hub_address(folder) or str(folder),
        "kind": predictor.kind,
        "policy": predictor.policy,
        "device": str(predictor.device),
        "answers": answers_to_json(told),
    }
    return json_format.dumps(document, indent=2) + "\n"


def _as_csv(told: _Told, top: int) -> str:
    """A row for each file: what was not read has an error in its last column, and nothing in the others."""
    text = io.StringIO()
    table = csv_format.writer(text, lineterminator="\n")
    ranks = [f"_{n}" if n > 1 else "" for n in range(1, top + 1)]
    classes = [column for rank in ranks for column in (f"class{rank}", f"probability{rank}")]
    table.writerow(["file", "size", "level", "seconds", *classes, "error"])
    for name, answer in told:
        if isinstance(answer, ArrnError):
            table.writerow([plain(name), *[""] * (3 + len(classes)), plain(why(answer))])
            continue
        ranked = [value for name, chance in answer.top for value in (plain(name), chance)]
        facts = ["x".join(map(str, answer.size)), "x".join(map(str, answer.level)), answer.seconds]
        table.writerow([plain(name), *facts, *ranked, *[""] * (len(classes) - len(ranked)), ""])
    return text.getvalue()


def _show(told: Sequence[tuple[str, Answer]], predictor: Predictor, cascade: bool) -> None:
    from arrn.signal.grid import format_grid

    table = Table()
    for column in (predictor.kind, "size", "class", "probability", "level", "time", *["cost"] * cascade):
        table.add_column(column, justify="left" if column in (predictor.kind, "class") else "right", overflow="fold")
    for name, answer in told:
        cost = "" if answer.multiply_adds is None else f"{answer.multiply_adds / 1e6:.1f}"
        table.add_row(
            shown(name),
            "x".join(map(str, answer.size)),
            shown_lines(str(name) for name, _ in answer.top),
            "\n".join(f"{probability:.1%}" for _, probability in answer.top),
            format_grid(answer.level),
            f"{1e3 * answer.seconds:.1f} ms",
            *[cost] * cascade,
        )
    console.print(table)
    if cascade:
        say("level: the last grid on which the network ran; the cascade begins at the lowest grid that it visits")
        say("cost: million multiply-adds of all levels that ran")
    else:
        say("level: the grid on which the input entered the network; levels above it did not run")
    say("time: an equal share of the time of its batch, without reading the file and without the first run of a level")
