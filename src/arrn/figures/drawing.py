"""What came of a figure: the figure, or a page of tables, or why there is none, and what it lacks."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure

__all__ = ["Drawing"]


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
