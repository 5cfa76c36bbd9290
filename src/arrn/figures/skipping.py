"""A drawing of skipping: which levels of one network run for inputs of different sizes, and what that costs."""

from __future__ import annotations

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from arrn.figures.pyramid import spell_size
from arrn.figures.style import COLOURS, Drawing, styled
from arrn.figures.subject import Subject
from arrn.nn import ARRN
from arrn.nn.introspection import multiply_adds
from arrn.signal import resample
from arrn.signal.grid import Grid, format_grid

_RAN, _SKIPPED = COLOURS[0], "0.72"
_WIDTH, _HEIGHT, _GAP, _ROW = 1.7, 0.9, 0.55, 1.55  # of a box, and between boxes and rows, in units of the drawing
_FIRST = 2.6  # where the boxes begin, to the right of the image


def skipping_figure(subject: Subject) -> Drawing:
    """One row for each grid of the subject's network: an input of that size, and the levels that it runs."""
    return Drawing("skipping", draw_skipping(subject.image, subject.network))


def draw_skipping(image: torch.Tensor, network: ARRN) -> Figure:
    """Draws the ladder once for each of its grids: levels that run are filled, skipped levels are outlines.

    Args:
        image: values in [0, 1], shape (1, 3, height, width); shown at the size of each grid.
        network: for images.
    """
    grids = network.grids
    across = _FIRST + len(grids) * (_WIDTH + _GAP) + 1.6
    down = _ROW * len(grids)
    with styled():
        figure = Figure(figsize=(0.95 * across, 0.95 * down + 0.6), layout="constrained")
        axes = figure.subplots()
        for row, grid in enumerate(grids):
            _draw_row(axes, image, network, row, grid, -_ROW * row)
        axes.set(xlim=(-0.2, across), ylim=(-down + 0.75, 0.75), aspect="equal")
        axes.axis("off")
        figure.suptitle("One trained network: an input runs the levels from its own resolution down", fontsize=11)
        return figure


def _draw_row(axes: Axes, image: torch.Tensor, network: ARRN, row: int, grid: Grid, y: float) -> None:
    shown = resample(image, grid).clamp(0, 1)
    axes.imshow(
        shown[0].movedim(0, -1).numpy(),
        extent=(0, 1.2, y - 0.6, y + 0.6),
        interpolation="nearest",
        zorder=1,
    )
    axes.text(1.35, y, spell_size(shown), va="center", ha="left", fontsize=9)
    names = [f"level {format_grid(each)}" for each in network.grids[:-1]] + [f"base {format_grid(network.grids[-1])}"]
    centres = [_FIRST + n * (_WIDTH + _GAP) + _WIDTH / 2 for n in range(len(names))]
    for n, (name, centre) in enumerate(zip(names, centres, strict=True)):
        _draw_box(axes, centre, y, name, runs=n >= row)
    below = y - _HEIGHT / 2 - 0.14  # the way past skipped levels
    entered = centres[row] - _WIDTH / 2
    path = [(2.2, y), (entered, y)] if row == 0 else [(2.2, y), (2.35, y), (2.35, below), (entered - 0.25, below)]
    if row:
        path += [(entered - 0.25, y), (entered, y)]
    axes.plot(*zip(*path, strict=True), color=_RAN, linewidth=1.4, zorder=2)
    for left, right in zip(centres[row:], centres[row + 1 :], strict=False):
        axes.plot([left + _WIDTH / 2, right - _WIDTH / 2], [y, y], color=_RAN, linewidth=1.4, zorder=2)
    end = centres[-1] + _WIDTH / 2
    axes.annotate("", (end + 0.45, y), (end, y), arrowprops={"arrowstyle": "-|>", "color": _RAN, "linewidth": 1.4})
    cost = multiply_adds(network.at_resolution(grid), (1, network.in_channels, *grid)) / 1e6
    axes.text(end + 0.55, y, f"{cost:,.0f} million\nmultiply-adds", va="center", ha="left", fontsize=9)


def _draw_box(axes: Axes, x: float, y: float, name: str, *, runs: bool) -> None:
    box = FancyBboxPatch(
        (x - _WIDTH / 2, y - _HEIGHT / 2),
        _WIDTH,
        _HEIGHT,
        boxstyle="round,pad=0,rounding_size=0.12",
        facecolor=_RAN if runs else "white",
        edgecolor=_RAN if runs else _SKIPPED,
        linestyle="-" if runs else (0, (3, 2)),
        zorder=3,
    )
    axes.add_patch(box)
    text, colour = (name, "white") if runs else (f"{name}\nskipped", "0.45")
    axes.text(x, y, text, ha="center", va="center", color=colour, fontsize=9, zorder=4)
