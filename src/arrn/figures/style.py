"""One look for all pictures, readable on paper, on a screen and in greyscale; and how a figure becomes a file."""

from __future__ import annotations

import io
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from arrn.errors import plain
from arrn.writing import write_atomically

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


def literal(text: str) -> str:
    """Text that others may have written, such as the name of a folder, as it is: no formula, no control characters.

    >>> literal("from $5 to $6")
    'from \\\\$5 to \\\\$6'
    """
    return plain(text).replace("$", r"\$")


def save_figure(figure: Figure, path: Path) -> Path:
    """Writes the figure, by its suffix as PNG or SVG, whole or not at all, making the folder if need be.

    A link in the place of the file is replaced; what it leads to is left alone.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    with styled():
        figure.savefig(content, format=path.suffix.removeprefix("."), metadata=_METADATA.get(path.suffix))
    write_atomically(path, content.getvalue())
    return path
