"""`arrn kernels`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arrn.cli.console import say
from arrn.errors import ArrnError


def kernels(
    size: Annotated[int, typer.Option(help="Samples on the larger grid.")] = 32,
    next_size: Annotated[int, typer.Option(help="Samples on the smaller grid.")] = 16,
    plot: Annotated[Path | None, typer.Option(help="Also draw the report to this PNG or SVG file.")] = None,
) -> None:
    """Report the quality of the smoothing kernels, to help choose one.

    Example: arrn kernels --size 96 --next-size 48 --plot kernels.png
    """
    from arrn.signal import WhittakerShannon, kernel_quality

    if plot is not None and plot.suffix not in (".png", ".svg"):
        raise ArrnError(f"--plot takes a file ending in .png or .svg, got {str(plot)!r}")
    for kernel in ("perfect", WhittakerShannon("periodic"), "fair", "poor"):
        say(str(kernel_quality(kernel, size, next_size)))
    if plot is not None:
        from arrn.figures.kernels import plot_kernel_quality

        say(f"picture: {plot_kernel_quality(plot, size=size, next_size=next_size)}")
