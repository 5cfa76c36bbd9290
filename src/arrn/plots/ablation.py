"""Accuracy over resolution for each kernel, with and without dropout and adaptation, and a table of the gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from arrn.evaluation.decisions import Combination
from arrn.evaluation.gaps import adaptation_gap
from arrn.plots.curves import Curve, Point, draw_curve, resolution_axis
from arrn.plots.looks import ablation_look
from arrn.plots.style import styled

__all__ = ["draw_ablation"]

_COLUMNS = ("mean", "s.d.", "lowest", "highest")


def draw_ablation(accuracies: Mapping[Combination, Sequence[Point]], title: str = "") -> Figure:
    """One panel and one table for each kernel, in the order given; values are shares of 1.

    Args:
        accuracies: points over resolution, of each combination that there is. The area between a network's
            two lines, with and without adaptation, is shaded, and the table tells its size.
        title: of the figure.
    """
    kernels = list(dict.fromkeys(combination.kernel for combination in accuracies))
    with styled():
        figure = Figure(figsize=(0.6 + 4.0 * len(kernels), 5.8), layout="constrained")
        grid = figure.subplots(2, len(kernels), squeeze=False, sharey="row", height_ratios=[1, 0.24])
        for column, kernel in enumerate(kernels):
            upper, lower = grid[0, column], grid[1, column]
            rows = _draw_kernel(upper, kernel, accuracies)
            _draw_table(lower, rows)
            upper.set_title(f"{kernel} kernel")
            upper.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=1, handlelength=3.6)
        grid[0, 0].set_ylabel("accuracy (%)")
        figure.suptitle(title, fontsize=11)
        return figure


def _draw_kernel(
    axes: Axes, kernel: str, accuracies: Mapping[Combination, Sequence[Point]]
) -> list[tuple[str, list[str]]]:
    """Draws the lines of one kernel; returns the rows of its table."""
    rows = []
    resolutions: list[int] = []
    for dropout in (True, False):
        name = f"{'with' if dropout else 'without'} dropout"
        values: dict[bool, dict[int, float]] = {}
        for adapt in (True, False):
            points = accuracies.get(Combination(kernel, dropout, adapt), ())
            if points:
                label = f"{name}, {'adapted' if adapt else 'all levels'}"
                # Without intervals: what is shaded here is the gap between two lines.
                bare = tuple(Point(p.resolution, p.value, p.value, p.value) for p in points)
                draw_curve(axes, Curve(label, "arrn", bare), ablation_look(kernel, dropout, adapt), scale=100)
                values[adapt] = {point.resolution: point.value for point in points}
                resolutions += values[adapt]
        if len(values) == 2:
            sizes = sorted(set(values[True]) & set(values[False]))
            adapted, full = ({size: values[adapt][size] for size in sizes} for adapt in (True, False))
            lower, upper = ([100 * each[size] for size in sizes] for each in (adapted, full))
            colour = ablation_look(kernel, dropout, True).colour
            axes.fill_between(sizes, lower, upper, color=colour, alpha=0.25, linewidth=0)
            rows.append((name, adaptation_gap(adapted, full).cells()))
    resolution_axis(axes, resolutions, apart=0.2)
    return rows


def _draw_table(axes: Axes, rows: Sequence[tuple[str, list[str]]]) -> None:
    axes.axis("off")
    if not rows:
        return
    axes.set_title("adapted less all levels (points)", fontsize=9)
    table = axes.table(
        cellText=[[name, *cells] for name, cells in rows],
        colLabels=["", *_COLUMNS],
        colWidths=[0.36, *[0.16] * len(_COLUMNS)],
        bbox=Bbox.unit(),
        edges="horizontal",
    )
    table.auto_set_font_size(False)
    table.set_fontsize(9)
