"""`arrn demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from arrn.cli.console import console

__all__ = ["demo"]


def demo(out: Annotated[Path, typer.Option(help="The folder for the pictures.")] = Path("out/demo")) -> None:
    """Take a picture through a network at several resolutions.

    Shows that a low-resolution input skips the high-resolution levels, what that saves, and that the
    answer stays the same.

    Example: arrn demo --out /tmp/demo
    """
    from arrn.demo import BATCH, run_demo

    with console.status("running the demonstration"):
        result = run_demo(out)
    console.print(str(result.model), highlight=False)
    table = Table(title=f"One network, inputs of {len(result.rows)} resolutions (time: a batch of {BATCH})")
    for column in ("input", "grid", "levels run", "parameters", "multiply-adds", "time", "speed-up", "error"):
        table.add_column(column, justify="right")
    top = result.rows[0]
    for row in result.rows:
        table.add_row(
            f"{row.resolution}x{row.resolution}",
            str(row.grid),
            f"{row.levels} of {top.levels}",
            f"{row.parameters:,}",
            f"{row.multiply_adds / 1e6:.1f} M",
            str(row.time),
            f"{top.time.median / row.time.median:.1f}x",
            f"{row.error:.0e}",
        )
    console.print(table)
    console.print(
        "error: adapted against full evaluation of the same input, relative, in float32 (the pyramid "
        f"reconstructs the picture to {result.reconstruction_error:.0e})",
        highlight=False,
    )
    errors = ", ".join(f"{kernel} {error:.0e}" for kernel, error in result.kernel_errors.items())
    console.print(f"the same error at half resolution, by smoothing kernel: {errors}", highlight=False)
    for picture in result.pictures:
        console.print(f"picture: {picture}", highlight=False, soft_wrap=True)
