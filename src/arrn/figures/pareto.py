"""Accuracy against cost: every design a point, those that none beats on a line; a panel for each accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from arrn.figures.style import COLOURS, literal, save_figure, styled

MEAN = "mean over resolutions"
_MOST_COLUMNS = 3
_WIDTH, _HEIGHT = 4.4, 3.2  # of a panel, where there are several


@dataclass(frozen=True)
class ParetoPoint:
    """A design in the picture.

    Attributes:
        label: a few characters, such as its number in a table; "" for a design that went out early.
        cost: multiply-adds.
        accuracies: shares, by the panel that they are drawn in.
        on_front: whether no other design beats it.
        epochs: that it was trained for when it went out, 0 for a design that came to the last round.
    """

    label: str
    cost: float
    accuracies: Mapping[str, float] = field(default_factory=dict)
    on_front: bool = False
    epochs: int = 0


def plot_pareto(path: Path, points: Sequence[ParetoPoint], title: str = "") -> Path:
    """Draws accuracy against millions of multiply-adds (on a logarithmic axis)."""
    with styled():
        panels = list(points[0].accuracies) if points else [MEAN]
        columns = min(len(panels), _MOST_COLUMNS)
        rows = math.ceil(len(panels) / columns)
        size = (7.2, 4.6) if len(panels) == 1 else (_WIDTH * columns, _HEIGHT * rows)
        figure = Figure(figsize=size, layout="constrained")
        places = list(figure.subplots(rows, columns, squeeze=False, sharex=True).flat)
        for number, axes in enumerate(places):
            if number >= len(panels):
                axes.set_axis_off()
                continue
            _draw_panel(axes, panels[number], points)
            if number % columns == 0:
                axes.set_ylabel("accuracy (%)")
            if number + columns >= len(panels):  # nothing is below
                axes.set_xlabel("multiply-adds at the highest resolution (millions)")
                axes.tick_params(labelbottom=True)
            axes.set_title(literal(panels[number]))
        figure.suptitle(literal(title), fontsize=10)
        figure.legend(handles=_handles(points), loc="outside lower center", ncols=3)
        return save_figure(figure, path)


def _draw_panel(axes: Axes, panel: str, points: Sequence[ParetoPoint]) -> None:
    """The designs of one panel; those that went out early stay small, for fewer epochs are not compared with more."""
    here = [(point.cost / 1e6, 100 * point.accuracies[panel], point) for point in points]
    for epochs, style in zip(_early(points), _EARLY, strict=False):
        out = [(cost, height) for cost, height, point in here if point.epochs == epochs]
        axes.plot(*zip(*out, strict=True), style, color="#999999", markersize=4, zorder=1)
    beaten = [(cost, height) for cost, height, point in here if not point.on_front and not point.epochs]
    if beaten:
        axes.plot(*zip(*beaten, strict=True), "s", color=COLOURS[2], markerfacecolor="none")
    front = sorted((cost, height) for cost, height, point in here if point.on_front)
    if front:
        axes.plot(*zip(*front, strict=True), "o", color=COLOURS[0])
        steps = _rising(front)
        # Steps: between two designs, the cheaper one is the best there is.
        axes.step(*zip(*steps, strict=True), "-", where="post", color=COLOURS[0], alpha=0.6)
    labels: dict[tuple[float, float], list[str]] = {}
    for cost, height, point in here:
        labels.setdefault((cost, height), []).extend([point.label] if point.label else [])
    for place, names in labels.items():  # designs at one place share a label
        axes.annotate(literal(", ".join(names)), place, (4, 4), textcoords="offset points", fontsize=8)
    axes.set_xscale("log")
    axes.margins(0.08)
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high > 5 * low else (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())


def _rising(front: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of points from left to right, those that are higher than all before."""
    best: list[tuple[float, float]] = []
    for cost, height in front:
        if not best or height > best[-1][1]:
            best.append((cost, height))
    return best


_EARLY = ("x", "+", "1", "2", "3")


def _early(points: Sequence[ParetoPoint]) -> list[int]:
    """The epochs after which designs went out."""
    return sorted({point.epochs for point in points if point.epochs})[: len(_EARLY)]


def _handles(points: Sequence[ParetoPoint]) -> list[Line2D]:
    handles = [Line2D([], [], marker="o", linestyle="-", color=COLOURS[0], label="no design beats it")]
    if any(not point.on_front and not point.epochs for point in points):
        square = Line2D([], [], marker="s", markerfacecolor="none", linestyle="none", color=COLOURS[2])
        square.set_label("another design does")
        handles.append(square)
    for epochs, style in zip(_early(points), _EARLY, strict=False):
        label = f"out after {epochs} epoch{'s' * (epochs != 1)}"
        handles.append(Line2D([], [], marker=style, linestyle="none", color="#999999", markersize=4, label=label))
    return handles
