"""One look for all pictures: readable on paper, on a screen and in greyscale."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import matplotlib
import matplotlib.figure
from matplotlib.figure import Figure

from arrn.errors import unknown_name

# Distinct in hue and in lightness, so that greyscale and colour-blind readers tell them apart.
COLOURS = ["#0b3c5d", "#d1495b", "#edae49", "#66a182", "#8d6a9f"]
LINE_STYLES = ["-", "--", "-.", ":"]

# Files say nothing of when or by what they were drawn: the same numbers give the same bytes.
_METADATA: dict[str, dict[str, str | None]] = {".png": {"Software": None}, ".svg": {"Date": None, "Creator": "arrn"}}


def styled() -> AbstractContextManager[None]:
    """A context in which figures are drawn in the house style, without a screen."""
    return matplotlib.rc_context(
        {
            "font.family": "DejaVu Sans",  # comes with matplotlib, so it is the same on every machine
            "font.size": 10,
            "axes.titlesize": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.alpha": 0.3,
            "legend.frameon": False,
            "legend.fontsize": 9,
            "figure.dpi": 150,
            "savefig.bbox": "tight",
            "svg.hashsalt": "arrn",
        }
    )


def save_figure(figure: matplotlib.figure.Figure, path: Path) -> Path:
    """Writes the figure, by its suffix as PNG or SVG, making the folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with styled():
        figure.savefig(path, metadata=_METADATA.get(path.suffix))
    return path


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


@dataclass(frozen=True)
class Drawing:
    """A figure on its way to a file.

    Attributes:
        stem: of its files' names, such as "robustness-cifar10".
        figure: None where what there is does not suffice.
        lacking: what would make it complete, each in a few words, such as the name of a run.
        text: a page in Markdown, for what is no picture.
    """

    stem: str
    figure: Figure | None
    lacking: tuple[str, ...] = ()
    text: str | None = None
