"""How a network is drawn in every figure: its family's colour and line style, a marker of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from arrn.errors import unknown_name

__all__ = ["FAMILIES", "Look", "ablation_look", "look_of"]

LineStyle = str | tuple[int, tuple[int, ...]]

_MARKERS = "sD^v*X<>dph"


@dataclass(frozen=True)
class Look:
    """A line's look: any one of colour, line style and marker is enough to know it by."""

    colour: str
    line: LineStyle
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

_KERNEL_COLOURS = {"perfect": ("#1b6e4f", "#74b99a"), "fair": ("#a3202f", "#e58e98"), "poor": ("#1f4e8c", "#86aede")}


def look_of(family: str, member: int = 0) -> Look:
    """The look of a family's `member`; those after the first have other markers.

    >>> look_of("resnet", 1).marker
    'D'
    """
    if family not in FAMILIES:
        raise unknown_name("family of networks", family, FAMILIES)
    first = FAMILIES[family]
    if member == 0:
        return first
    marker = _MARKERS[member % len(_MARKERS)]
    return replace(first, marker=marker)


def ablation_look(kernel: str, dropout: bool, adapt: bool) -> Look:
    """The kernel's hue; dark circles with dropout, bright squares without; solid and full with adaptation.

    >>> ablation_look("fair", dropout=True, adapt=False).line
    '--'
    """
    if kernel not in _KERNEL_COLOURS:
        raise unknown_name("kernel", kernel, _KERNEL_COLOURS)
    dark, bright = _KERNEL_COLOURS[kernel]
    colour, marker = (dark, "o") if dropout else (bright, "s")
    # Without adaptation, larger open markers: where both lines coincide, as theory wants, both are seen.
    return Look(colour, "-", marker, "full", 2.0, 4.5) if adapt else Look(colour, "--", marker, "open", 1.2, 9)
