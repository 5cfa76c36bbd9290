"""Curves over resolution: what figures draw, and the axis they are drawn on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, NullLocator

from arrn.plots.looks import Look, look_of

__all__ = ["Curve", "Point", "draw_curve", "resolution_axis"]


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
