"""`arrn models`."""

from __future__ import annotations

from rich.table import Table

from arrn.cli.console import console

__all__ = ["models"]


def models() -> None:
    """List the models that `arrn.create_model` builds, and what they cost with their default options.

    Example: arrn models
    """
    from arrn.models import list_models, summarise
    from arrn.signal.grid import format_grid

    table = Table(title="parameters: at the lowest resolution and in all; multiply-adds: at each resolution")
    for column in ("name", "kind", "sizes"):
        table.add_column(column, no_wrap=column == "name")
    table.add_column("parameters", justify="right")
    table.add_column("multiply-adds", justify="right")
    for name in list_models():
        summary = summarise(name)
        counts = [summary.base_parameters, summary.parameters] if summary.kind == "adaptive" else [summary.parameters]
        table.add_row(
            name,
            summary.kind,
            " ".join(map(format_grid, summary.grids)),
            " to ".join(f"{count / 1e6:.2f} M" for count in counts),
            " ".join(f"{cost / 1e6:.0f} M" if cost >= 1e7 else f"{cost / 1e6:.1f} M" for cost in summary.multiply_adds),
        )
    console.print(table)
