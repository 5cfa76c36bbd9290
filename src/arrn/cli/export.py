"""`arrn export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from arrn.cli.console import console, say, shown
from arrn.errors import ArrnError, RunError


def export(
    folder: Annotated[Path, typer.Argument(help="A finished run, or any folder that arrn.save wrote.")],
    *,
    to: Annotated[str, typer.Option("--to", help="onnx, pt2 (torch.export) or executorch.")] = "onnx",
    levels: Annotated[str, typer.Option(help="The levels to export: all, or grids such as 32,16,8 or 64x32.")] = "all",
    out: Annotated[Path, typer.Option(help="The new folder. An earlier export in its place is replaced.")],
    policy: Annotated[
        str | None, typer.Option(help="exact or cheap, for sizes between two grids [default: the network's own].")
    ] = None,
) -> None:
    """Write files that run without this library: one for each level, and manifest.json.

    Each file takes numbers as they are stored (images: 0 to 255), and has normalisation, resampling and softmax
    inside. For ONNX there is also any-size.onnx, which picks the level itself and skips those above it. Every file is
    compared with PyTorch as soon as it is written.

    Examples:

    arrn export weights/arrn_small --out out/small-onnx

    arrn export runs/first --to pt2 --levels 16,8 --out out/first-pt2
    """
    from arrn.deploy.export import export_network
    from arrn.nn.network import as_policy

    wanted = None if levels == "all" else [name.strip() for name in levels.split(",")]
    if wanted is not None and not all(wanted):
        raise ArrnError(f"--levels takes all, or grids with commas between, such as 32,16,8; got {levels!r}")
    chosen = None if policy is None else as_policy(policy)
    exported = export_network(folder, out, to, levels=wanted, policy=chosen, say=say)
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
