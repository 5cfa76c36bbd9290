"""`arrn export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from arrn.cli.console import console, say, shown
from arrn.errors import ArrnError, RunError, needs

if TYPE_CHECKING:  # help and completion do not wait for torch
    from arrn.deploy.quantising import Quantiser


def export(
    folder: Annotated[Path, typer.Argument(help="A finished run, or any folder that arrn.save wrote.")],
    *,
    to: Annotated[str, typer.Option("--to", help="The format: onnx, pt2 (torch.export) or executorch.")] = "onnx",
    levels: Annotated[str, typer.Option(help="The levels to export: all, or grids such as 32,16,8 or 64x32.")] = "all",
    out: Annotated[Path, typer.Option(help="The new folder. An earlier export of that name is replaced.")],
    policy: Annotated[
        str | None, typer.Option(help="For sizes between two grids: exact or cheap [default: the network's own].")
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="Also 8-bit ONNX files, where they are accurate and fast enough.")
    ] = False,
    dataset: Annotated[
        str | None, typer.Option(help="For --int8: another data set than the run's, with the same classes.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="For --int8: the data set's root.")] = None,
    samples: Annotated[
        int | None,
        typer.Option(min=1, help="For --int8: the number of samples to measure accuracy on [default: 2000]."),
    ] = None,
) -> None:
    """Write files that run without this library: one for each level, and manifest.json.

    Each file takes numbers as they are stored (images: 0 to 255). Normalisation, resampling and softmax are inside the
    file. For ONNX there is also any-size.onnx, which chooses the level itself and skips the levels above. Every file is
    compared with PyTorch as soon as it is written.

    --int8 finds the ranges of numbers inside the network on 300 samples of the training split, and measures each 8-bit
    file on samples of the test split. A file that loses more than 1 point of accuracy, or is not 1.3 times as fast, is
    not kept; the manifest says why.

    Examples:

    arrn export weights/arrn_small --out out/small-onnx

    arrn export runs/first --to pt2 --levels 16,8 --out out/first-pt2

    arrn export runs/first --int8 --out out/first-int8
    """
    from arrn.deploy.export import export_network
    from arrn.nn.network import as_policy

    wanted = None if levels == "all" else [name.strip() for name in levels.split(",")]
    if wanted is not None and not all(wanted):
        raise ArrnError(f"--levels takes all, or grids with commas between, such as 32,16,8; got {levels!r}")
    chosen = None if policy is None else as_policy(policy)
    if not int8 and (dataset, data, samples) != (None, None, None):
        raise ArrnError("--dataset, --data and --samples are for 8-bit files: add --int8, or leave them out")
    quantise = _quantiser(folder, dataset, data, samples) if int8 else None
    exported = export_network(folder, out, to, levels=wanted, policy=chosen, say=say, quantise=quantise)
    table = Table(title=shown(f"{exported.manifest.model} for {to}", "table.title"))
    for column in ("level", "file", "MB", "parameters", "multiply-adds", "difference", "accuracy"):
        table.add_column(column, justify="left" if column == "file" else "right", overflow="fold")
    for entry in exported.manifest.levels:
        table.add_row(
            "x".join(map(str, entry.grid)),
            shown(entry.exported.file),
            f"{entry.exported.bytes / 1e6:.2f}",
            f"{entry.parameters:,}",
            f"{entry.multiply_adds:,}",
            f"{entry.exported.difference:.1g}",
            "" if entry.accuracy is None else f"{entry.accuracy:.1%}",
        )
    console.print(table)
    say(f"{len(exported.manifest.files)} files and manifest.json: {exported.folder}")
    if exported.refused:
        raise RunError(f"{len(exported.refused)} files were not kept: {'; '.join(exported.refused)}")


def _quantiser(folder: Path, dataset: str | None, data: Path | None, samples: int | None) -> Quantiser:
    with needs("onnx, onnxruntime and onnxscript", "--int8", "onnx"):
        from arrn.deploy.quantising import MEASURED, open_quantiser
    return open_quantiser(folder, dataset, None if data is None else str(data), samples or MEASURED)
