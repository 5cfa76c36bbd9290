"""Accuracy over resolution of a few networks, from what `arrn evaluate` reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from arrn.figures.curves import resolution_axis
from arrn.figures.style import COLOURS, LINE_STYLES, literal, save_figure, styled

_MARKERS = "osD^vP*X"


def accuracy_lines(name: str, results: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """The results of one network, sorted into lines by name; running every level is one line whatever the policy."""
    lines: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        if result["resolution"] is None:
            continue
        if result["adapt"] is None:
            label = name
        elif result["adapt"]:
            label = f"{name}, adapted ({result['policy']})"
        else:
            label = f"{name}, all levels"
        points = lines.setdefault(label, [])
        if all(point["resolution"] != result["resolution"] for point in points):
            points.append(result)
    return {label: sorted(points, key=lambda point: point["resolution"]) for label, points in lines.items()}


def plot_accuracy(path: Path, lines: Mapping[str, Sequence[Mapping[str, Any]]], title: str = "") -> Path:
    """Draws lines of accuracy against resolution (on a logarithmic axis) with their 95% intervals."""
    with styled():
        figure = Figure(figsize=(7.2, 4.6))
        axes = figure.subplots()
        for n, (label, points) in enumerate(lines.items()):
            x = [point["resolution"] for point in points]
            colour = COLOURS[n % len(COLOURS)]
            axes.plot(
                x,
                [100 * point["accuracy"] for point in points],
                LINE_STYLES[n % len(LINE_STYLES)],
                color=colour,
                marker=_MARKERS[n % len(_MARKERS)],
                # Open, and smaller from line to line: lines that coincide, as theory wants, are all seen.
                markerfacecolor="none",
                markersize=5 + 3 * min(3, len(lines) - 1 - n),
                label=literal(label),
            )
            lower, upper = ([100 * point["interval"][side] for point in points] for side in (0, 1))
            axes.fill_between(x, lower, upper, color=colour, alpha=0.15, linewidth=0)
        resolution_axis(axes, [point["resolution"] for points in lines.values() for point in points])
        axes.set_ylabel("accuracy (%), with 95% intervals")
        axes.set_title(literal(title))
        # Below the axes: no line is ever behind it.
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=1 if len(lines) < 3 else 2)
        return save_figure(figure, path)
