"""Accuracy against cost: every design a point, those that none beats on a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from arrn.figures.style import COLOURS, literal, save_figure, styled


@dataclass(frozen=True)
class ParetoPoint:
    """A design in the picture.

    Attributes:
        label: a few characters, such as its number in a table.
        cost: multiply-adds.
        accuracy: a share.
        on_front: whether no other design is better for the same cost.
    """

    label: str
    cost: float
    accuracy: float
    on_front: bool


def plot_pareto(path: Path, points: Sequence[ParetoPoint], title: str = "") -> Path:
    """Draws mean accuracy against millions of multiply-adds (on a logarithmic axis)."""
    with styled():
        figure = Figure(figsize=(7.2, 4.6))
        axes = figure.subplots()
        front = sorted((point for point in points if point.on_front), key=lambda point: point.cost)
        beaten = [point for point in points if not point.on_front]
        millions = [point.cost / 1e6 for point in front]
        heights = [100 * point.accuracy for point in front]
        # Steps: between two designs of the front, the cheaper one is the best there is.
        axes.step(millions, heights, "-", where="post", color=COLOURS[0], alpha=0.6)
        axes.plot(millions, heights, "o", color=COLOURS[0], label="none is better for its cost")
        axes.plot(
            [point.cost / 1e6 for point in beaten],
            [100 * point.accuracy for point in beaten],
            "s",
            color=COLOURS[2],
            markerfacecolor="none",
            label="another one is",
        )
        for point in points:
            place = (point.cost / 1e6, 100 * point.accuracy)
            axes.annotate(literal(point.label), place, (4, 4), textcoords="offset points", fontsize=8)
        axes.set_xscale("log")
        axes.margins(0.08)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("multiply-adds at the highest resolution (millions)")
        axes.set_ylabel("mean accuracy over resolutions (%)")
        axes.set_title(literal(title))
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
        return save_figure(figure, path)
