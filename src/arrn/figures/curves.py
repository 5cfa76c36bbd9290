"""What networks that are no ARRNs are called in figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.figure
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, NullLocator

from arrn.figures.style import COLOURS, LINE_STYLES, Look, look_of, save_figure, styled

ARCHITECTURES = {
    "resnet18": ("ResNet18", "resnet", 0),
    "resnet50": ("ResNet50", "resnet", 1),
    "resnet101": ("ResNet101", "resnet", 2),
    "wide_resnet50_2": ("WideResNet50V2", "wide_resnet", 0),
    "wide_resnet101_2": ("WideResNet101V2", "wide_resnet", 1),
    "mobilenet_v3_small": ("MobileNetV3Small", "mobilenet", 0),
    "mobilenet_v3_large": ("MobileNetV3Large", "mobilenet", 1),
    "efficientnet_v2_s": ("EfficientNetV2S", "efficientnet", 0),
    "efficientnet_v2_m": ("EfficientNetV2M", "efficientnet", 1),
    "efficientnet_v2_l": ("EfficientNetV2L", "efficientnet", 2),
    "resnet18_small_stem": ("ResNet18, small stem", "resnet", 3),
    "resnet18_switchable": ("ResNet18, switchable", "switchable", 0),
    "fourier_operator": ("Fourier operator", "fourier", 0),
}
"""Of every network that is no ARRN: its title, its family and its number in the family."""


@dataclass(frozen=True)
class Point:
    """A value at a resolution, and the interval around it (the value itself twice where there is none)."""

    resolution: int
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """A line of a figure: its label, the network's family and number in it (see `look_of`), its points."""

    label: str
    family: str
    points: tuple[Point, ...]
    member: int = 0

    @property
    def resolutions(self) -> list[int]:
        """The resolutions of its points."""
        return [point.resolution for point in self.points]


def draw_curve(axes: Axes, curve: Curve, look: Look | None = None, scale: float = 1.0) -> None:
    """Draws a line with its band; values are multiplied by `scale`."""
    look = look or look_of(curve.family, curve.member)
    x = curve.resolutions
    axes.plot(x, [scale * point.value for point in curve.points], label=curve.label, **look.options())
    low, high = [scale * point.low for point in curve.points], [scale * point.high for point in curve.points]
    if low != high:
        axes.fill_between(x, low, high, color=look.colour, alpha=0.15, linewidth=0)


def resolution_axis(axes: Axes, resolutions: Iterable[int], apart: float = 0.15) -> None:
    """A logarithmic axis with a tick at each resolution; labels closer than `apart` octaves are left out."""
    sizes = sorted(set(resolutions))
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, _labels(sizes, apart))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("resolution (samples along each axis)")


def _labels(sizes: Sequence[int], apart: float) -> list[str]:
    """From the highest down, since full resolution must be named."""
    named: list[int] = []
    for size in reversed(sizes):
        if not named or math.log2(named[-1] / size) >= apart:
            named.append(size)
    return [str(size) if size in named else "" for size in sizes]


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
        figure = matplotlib.figure.Figure(figsize=(7.2, 4.6))
        axes = figure.subplots()
        for n, (label, points) in enumerate(lines.items()):
            x = [point["resolution"] for point in points]
            y = [100 * point["accuracy"] for point in points]
            colour = COLOURS[n % len(COLOURS)]
            axes.plot(
                x,
                y,
                LINE_STYLES[n % len(LINE_STYLES)],
                color=colour,
                marker=_MARKERS[n % len(_MARKERS)],
                # Open, and smaller from line to line: lines that coincide, as theory wants, are all seen.
                markerfacecolor="none",
                markersize=5 + 3 * min(3, len(lines) - 1 - n),
                label=label,
            )
            lower, upper = ([100 * point["interval"][side] for point in points] for side in (0, 1))
            axes.fill_between(x, lower, upper, color=colour, alpha=0.15, linewidth=0)
        resolution_axis(axes, [point["resolution"] for points in lines.values() for point in points])
        axes.set_ylabel("accuracy (%), with 95% intervals")
        axes.set_title(title)
        # Below the axes: no line is ever behind it.
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=1 if len(lines) < 3 else 2)
        return save_figure(figure, path)
