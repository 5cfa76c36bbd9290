"""Accuracy over resolution of a few networks, from what `arrn evaluate` reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
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
        points = lines.setdefault(_label(name, result), [])
        if all(point["resolution"] != result["resolution"] for point in points):
            points.append(result)
    return {label: sorted(points, key=lambda point: point["resolution"]) for label, points in lines.items()}


def as_they_come(name: str, results: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Of samples of differing sizes: the result of each line with the samples as they come; nothing for one size."""
    found: dict[str, Mapping[str, Any]] = {}
    for result in results:
        if result["resolution"] is None:
            found.setdefault(_label(name, result), result)
    return found


def _label(name: str, result: Mapping[str, Any]) -> str:
    if result["adapt"] is None:
        return name
    return f"{name}, adapted ({result['policy']})" if result["adapt"] else f"{name}, all levels"


def plot_accuracy(
    path: Path,
    lines: Mapping[str, Sequence[Mapping[str, Any]]],
    title: str = "",
    mixed: Mapping[str, Mapping[str, Any]] | None = None,
    rate: float | None = None,
) -> Path:
    """Draws lines of accuracy against resolution (on a logarithmic axis) with their 95% intervals.

    Args:
        path: of the file.
        lines: by name.
        title: of the figure.
        mixed: the results of samples as they come, by the names of the lines; they lead, before the axis begins.
        rate: samples per second at a resolution of 1, for sound: the axis is then in Hz.
    """
    mixed = mixed or {}
    with styled():
        figure = Figure(figsize=(7.2, 4.6))
        axes = figure.subplots()
        sizes = [point["resolution"] for points in lines.values() for point in points]
        bands: list[tuple[list[int], list[float], list[float]]] = []
        leads = min(sizes, default=1) / 1.45  # where samples as they come are drawn
        for n, label in enumerate(dict.fromkeys([*mixed, *lines])):
            points = lines.get(label, ())
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
            if (x, lower, upper) not in bands:  # of lines that coincide, one band is enough
                axes.fill_between(x, lower, upper, color=colour, alpha=0.15, linewidth=0)
            bands.append((x, lower, upper))
            if label in mixed:
                value, (low, high) = mixed[label]["accuracy"], mixed[label]["interval"]
                axes.errorbar(
                    [leads],
                    [100 * value],
                    [[100 * (value - low)], [100 * (high - value)]],
                    fmt=_MARKERS[n % len(_MARKERS)],
                    color=colour,
                    markerfacecolor="none",
                    markersize=5 + 3 * min(3, len(lines) - 1 - n),
                    capsize=3,
                )
        resolution_axis(axes, sizes, rate=rate)
        if mixed:
            axes.set_xticks([leads, *axes.get_xticks()], ["as they\ncome", *_tick_texts(axes)])
            axes.axvline(leads * 1.45**0.5, color="0.8", linewidth=1)
        axes.set_ylabel("accuracy (%), with 95% intervals")
        axes.set_title(literal(title))
        # Below the axes: no line is ever behind it.
        axes.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.2 if mixed else -0.16), ncols=1 if len(lines) < 3 else 2
        )
        return save_figure(figure, path)


def _tick_texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.get_xticklabels()]
