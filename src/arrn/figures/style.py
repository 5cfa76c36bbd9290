"""One look for all pictures, readable on paper, on a screen and in greyscale; and how a figure becomes a file."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

# Distinct in hue and in lightness, so that greyscale and colour-blind readers tell them apart.
COLOURS = ["#0b3c5d", "#d1495b", "#edae49", "#66a182", "#8d6a9f"]
LINE_STYLES = ["-", "--", "-.", ":"]

# Files say nothing of when or by what they were drawn: the same numbers give the same bytes.
_METADATA: dict[str, dict[str, str | None]] = {".png": {"Software": None}, ".svg": {"Date": None, "Creator": "arrn"}}


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


def save_figure(figure: Figure, path: Path) -> Path:
    """Writes the figure, by its suffix as PNG or SVG, making the folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with styled():
        figure.savefig(path, metadata=_METADATA.get(path.suffix))
    return path
