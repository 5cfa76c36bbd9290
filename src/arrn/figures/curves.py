"""Lines over resolution, the common part of figures that compare networks: their points, names and looks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, NullLocator

from arrn.errors import unknown_name

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

FRONTIER_DESIGNS = {
    "arrn_medium": ("ARRN medium", 0),
    "arrn_mini": ("ARRN mini", 1),
}
"""Of every design beyond the paper: its title and its number in their family."""


@dataclass(frozen=True)
class Look:
    """A line's look: any one of colour, line style and marker is enough to know it by."""

    colour: str
    line: str | tuple[int, tuple[int, ...]]
    marker: str
    face: Literal["full", "white", "open"] = "white"
    width: float = 1.4
    size: float = 5.5

    def options(self) -> dict[str, Any]:
        """What `axes.plot` takes."""
        return {
            "color": self.colour,
            "linestyle": self.line,
            "linewidth": self.width,
            "marker": self.marker,
            "markersize": self.size,
            "markerfacecolor": {"full": self.colour, "white": "white", "open": "none"}[self.face],
        }


FAMILIES = {
    "arrn": Look("#0b3c5d", "-", "o", face="full", width=2.4),
    "arrn without dropout": Look("#d1495b", "--", "o", width=2.0),
    "frontier": Look("#b3123e", "-", "o", face="full", width=2.0),
    "transplant": Look("#0b3c5d", "-", "o", face="full"),
    "resnet": Look("#66a182", "-.", "s"),
    "wide_resnet": Look("#3f7d5a", (0, (8, 2)), "s"),
    "mobilenet": Look("#e09f2d", ":", "s", width=1.8),
    "efficientnet": Look("#8d6a9f", (0, (5, 1, 1, 1, 1, 1)), "s"),
    "random": Look("#c06014", "-", "P"),
    "switchable": Look("#8d6a9f", (0, (3, 1)), "s"),
    "fourier": Look("#e09f2d", (0, (6, 1, 1, 1)), "s"),
    "specialist": Look("#777777", (0, (1, 2)), "s", width=1.8),
    "other": Look("#444444", (0, (4, 2, 1, 2, 1, 2)), "s"),
}
"""The families, each with the look of its first member."""

_MARKERS = "sD^v*X<>dph"
_GAP, _CHARACTER = 0.012, 0.0145  # of a resolution axis, which labels below it take
_NAME_HEIGHT = 0.052  # of the axes, between two names beside their lines


def look_of(family: str, member: int = 0) -> Look:
    """The look of a family's `member`; those after the first have other markers.

    >>> look_of("resnet", 1).marker
    'D'
    """
    if family not in FAMILIES:
        raise unknown_name("family of networks", family, FAMILIES)
    first = FAMILIES[family]
    return first if member == 0 else replace(first, marker=_MARKERS[member % len(_MARKERS)])


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


def label_ends(axes: Axes, curves: Sequence[Curve], scale: float = 1.0) -> None:
    """Writes each line's name to the right of its last point, joined to it by a thin line; no two names overlap.

    The axes' limits must not change afterwards.

    Args:
        axes: on which the curves are drawn.
        curves: each with its points.
        scale: what values were multiplied by.
    """
    named = sorted((curve for curve in curves if curve.points), key=lambda curve: curve.points[-1].value)
    ends = [scale * curve.points[-1].value for curve in named]
    low, high = axes.get_ylim()
    places = _spread(ends, _NAME_HEIGHT * (high - low), high)
    for curve, end, place in zip(named, ends, places, strict=True):
        look = look_of(curve.family, curve.member)
        last = curve.points[-1].resolution
        axes.annotate(
            curve.label,
            xy=(last, (end - low) / (high - low)),
            xycoords=axes.get_xaxis_transform(),  # across in data, up in shares of the axes
            xytext=(1.06, (place - low) / (high - low)),
            textcoords="axes fraction",
            color=look.colour,
            fontsize=9,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": look.colour,
                "linewidth": 0.6,
                "shrinkA": 1,
                "shrinkB": 4,
                "relpos": (0, 0.5),
            },
        )


def _spread(ends: Sequence[float], least: float, highest: float) -> list[float]:
    """Places near to the (ascending) ends, at least `least` apart and none above `highest`.

    >>> _spread([1, 5, 5, 5], 1, 6)
    [1.0, 4.0, 5.0, 6.0]
    """
    # Crowded names lie around the mean of their ends; groups that come to overlap become one.
    groups = [[float(end)] for end in ends]

    def bottom(group: list[float]) -> float:
        length = least * (len(group) - 1)
        return min(sum(group) / len(group) - length / 2, highest - length)

    n = 1
    while n < len(groups):
        below, above = groups[n - 1], groups[n]
        if bottom(above) - (bottom(below) + least * (len(below) - 1)) < least:
            groups[n - 1 : n + 1] = [below + above]
            n = max(1, n - 1)
        else:
            n += 1
    return [bottom(group) + least * place for group in groups for place in range(len(group))]


def resolution_axis(axes: Axes, resolutions: Iterable[int], apart: float = 0.15, rate: float | None = None) -> None:
    """A logarithmic axis with a tick at each resolution; labels for which there is no room are left out.

    Args:
        axes: whose horizontal axis it becomes.
        resolutions: samples along each axis.
        apart: octaves between two labels, at least.
        rate: of sound: samples per second at a resolution of 1; the axis is then in Hz.
    """
    sizes = sorted(set(resolutions))
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, tick_labels(sizes, [str(n) if rate is None else f"{rate * n:g}" for n in sizes], apart))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("resolution (samples along each axis)" if rate is None else "sampling rate (Hz)")


def tick_labels(sizes: Sequence[int], labels: Sequence[str], apart: float) -> list[str]:
    """The labels of ticks, without those that would run into a neighbour.

    >>> tick_labels([4, 64, 96, 112, 128], ["4", "64", "96", "112", "128"], 0.15)
    ['4', '64', '96', '', '128']
    >>> tick_labels([600, 1200, 2400, 3600, 4200, 4800], "1000 2000 4000 6000 7000 8000".split(), 0.15)
    ['1000', '2000', '4000', '6000', '', '8000']
    """
    octaves = math.log2(sizes[-1] / sizes[0]) if sizes else 0.0
    named, last = [""] * len(sizes), None
    for n in reversed(range(len(sizes))):  # from the highest down, since full resolution must be named
        longest = max(len(labels[n]), 0 if last is None else len(labels[last]))
        room = max(apart, octaves * (_GAP + _CHARACTER * longest))
        if last is None or math.log2(sizes[last] / sizes[n]) >= room:
            named[n], last = labels[n], n
    return named
