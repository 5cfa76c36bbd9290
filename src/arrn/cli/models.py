"""`arrn models` and `arrn kernels`: what networks are built from, and what they cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track
from rich.table import Table

from arrn.cli.console import check_plot, console, say
from arrn.errors import unknown_name


def models(
    names: Annotated[list[str] | None, typer.Argument(help="Only models whose name contains one of these.")] = None,
) -> None:
    """List the models that `arrn.create_model` builds, and what they cost with their default options.

    Examples:

    arrn models

    arrn models cifar resnet18
    """
    from arrn.models import list_models, summarise
    from arrn.signal.grid import format_grid

    chosen = [name for name in list_models() if not names or any(part in name for part in names)]
    if not chosen:
        raise unknown_name("model", " ".join(names or []), list_models())
    table = Table(
        title="Networks by name, in millions",
        caption="parameters: at the lowest resolution and in all; projections: how many of those in all; "
        "multiply-adds: at each size",
    )
    for column in ("name", "kind", "sizes"):
        table.add_column(column, no_wrap=column == "name")
    for column in ("parameters", "projections", "multiply-adds"):
        table.add_column(column, justify="right")
    for name in track(chosen, "counting", console=console, transient=True, disable=not console.is_terminal):
        summary = summarise(name)
        adaptive = summary.kind == "adaptive"
        counts = [summary.base_parameters, summary.parameters] if adaptive else [summary.parameters]
        table.add_row(
            name,
            summary.kind,
            " ".join(map(format_grid, summary.grids)),
            " to ".join(f"{count / 1e6:.2f}" for count in counts),
            f"{summary.projection_parameters / 1e6:.2f}" if adaptive else "",
            " ".join(f"{cost / 1e6:.0f}" if cost >= 1e7 else f"{cost / 1e6:.1f}" for cost in summary.multiply_adds),
        )
    console.print(table)


def kernels(
    size: Annotated[int, typer.Option(help="Samples on the larger grid.")] = 32,
    next_size: Annotated[int, typer.Option(help="Samples on the smaller grid.")] = 16,
    plot: Annotated[Path | None, typer.Option(help="Also draw the report to this PNG or SVG file.")] = None,
) -> None:
    """Report the quality of the smoothing kernels, to help choose one.

    Example: arrn kernels --size 96 --next-size 48 --plot kernels.png
    """
    from arrn.signal import WhittakerShannon, kernel_quality

    check_plot(plot)
    for kernel in ("perfect", WhittakerShannon("periodic"), "fair", "poor"):
        say(str(kernel_quality(kernel, size, next_size)))
    if plot is not None:
        from arrn.figures import plot_kernel_quality

        say(f"picture: {plot_kernel_quality(plot, size=size, next_size=next_size)}")
