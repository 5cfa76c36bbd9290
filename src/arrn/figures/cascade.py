"""Accuracy over average cost: the cascade, each level alone, and every input at its own size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from arrn.figures.style import COLOURS, literal, save_figure, styled


def plot_cascade(
    path: Path,
    results: Sequence[Mapping[str, Any]],
    levels: Sequence[Mapping[str, Any]],
    plain: Mapping[str, Any],
    title: str = "",
) -> Path:
    """Draws accuracy against million multiply-adds for an input, on average.

    Args:
        path: a PNG or SVG file.
        results: of the cascade at each choice of levels and threshold: multiply_adds, accuracy and interval.
        levels: the same for each level alone, and its `grid`.
        plain: the same without a cascade: each input at the level of its own size.
        title: of the picture.
    """
    with styled():
        figure = Figure(figsize=(7.2, 4.6))
        axes = figure.subplots()
        results = sorted(results, key=_millions)
        costs = [_millions(point) for point in results]
        axes.plot(costs, [100 * point["accuracy"] for point in results], ".-", color=COLOURS[0], label="cascade")
        lower, upper = ([100 * point["interval"][side] for point in results] for side in (0, 1))
        axes.fill_between(costs, lower, upper, color=COLOURS[0], alpha=0.15, linewidth=0)
        axes.plot(
            [_millions(point) for point in levels],
            [100 * point["accuracy"] for point in levels],
            "s",
            color=COLOURS[1],
            label="one level for all inputs",
        )
        for point in levels:
            place = (_millions(point), 100 * point["accuracy"])
            axes.annotate(literal(point["grid"]), place, (6, -10), textcoords="offset points", fontsize=8)
        axes.plot(
            [_millions(plain)],
            [100 * plain["accuracy"]],
            "o",
            color=COLOURS[2],
            markerfacecolor="none",
            markersize=11,
            label="each input at its own size",
        )
        axes.set_xlim(left=0)
        axes.set_xlabel("million multiply-adds for an input, on average")
        axes.set_ylabel("accuracy (%), with 95% intervals")
        axes.set_title(literal(title))
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)
        return save_figure(figure, path)


def _millions(point: Mapping[str, Any]) -> float:
    return float(point["multiply_adds"]) / 1e6
