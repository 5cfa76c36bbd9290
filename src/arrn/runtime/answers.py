"""What a network says of an input: the class, how probable it is, and what the answer took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, overload

import numpy as np

from ..errors import ArrnError
from .elements import Content, Markup, element, join, notebook_table, share_bar
from .files import Array
from .levels import Grid, format_grid


@dataclass(frozen=True)
class Answer:
    """The answer of the network for one input.

    Attributes:
        label: the number of the most probable class.
        name: the name of this class; None if classes have no names.
        probability: the probability of this class.
        top: the most probable classes and their probabilities, highest first: names, or numbers if there are no names.
        size: the input's own size.
        level: the grid on which the input entered the network; with the cascade, the grid of the last level that ran.
        seconds: the time of the network for this input: an equal share of the time of its batch, without the time to
            read the input and to prepare the level.
        multiply_adds: the multiply-adds of all levels that ran for this input; None if they are not known.
    """

    label: int
    name: str | None
    probability: float
    top: tuple[tuple[str | int, float], ...]
    size: Grid
    level: Grid
    seconds: float
    multiply_adds: int | None = None

    def to_json(self) -> dict[str, Any]:
        """All of it as data that JSON holds.

        >>> Answer(1, "cat", 0.75, (("cat", 0.75),), (30, 40), (32, 32), 0.001).to_json()["top"]
        [{'class': 'cat', 'probability': 0.75}]
        """
        return {
            "label": self.label,
            "class": self.name,
            "probability": self.probability,
            "top": [{"class": name, "probability": probability} for name, probability in self.top],
            "size": list(self.size),
            "level": list(self.level),
            "seconds": self.seconds,
            "multiply_adds": self.multiply_adds,
        }

    def __repr__(self) -> str:
        known = self.label if self.name is None else self.name
        size, level = "x".join(map(str, self.size)), format_grid(self.level)
        return f"Answer({known!r}, {self.probability:.1%}, size {size}, level {level}, {1e3 * self.seconds:.1f} ms)"

    def _repr_html_(self) -> str:
        return AnswerList([self])._repr_html_()


def make_answer(
    probabilities: Array,
    names: Sequence[str] | None,
    *,
    size: Grid,
    level: Grid,
    top: int = 1,
    seconds: float = 0.0,
    multiply_adds: int | None = None,
) -> Answer:
    """The answer that probabilities of shape (classes,) are.

    >>> make_answer(np.array([0.2, 0.7, 0.1]), None, size=(8, 8), level=(8, 8), top=2).top
    ((1, 0.7), (0, 0.2))
    """
    order = np.argsort(-probabilities, kind="stable")[: max(top, 1)].tolist()
    told = tuple((n if names is None else names[n], float(probabilities[n])) for n in order)
    label = order[0]
    name = None if names is None else names[label]
    return Answer(label, name, told[0][1], told, size, level, seconds, multiply_adds)


def check_top(top: int) -> None:
    """Refuses a number of classes to tell that is no whole number above 0."""
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise ArrnError(f"top is the number of classes in an answer, a whole number of at least 1, got {top!r}")


class AnswerList(list[Answer]):
    """A list of answers that a notebook shows as a table, and `print` one under another; so is a slice of one."""

    @overload
    def __getitem__(self, place: SupportsIndex, /) -> Answer: ...

    @overload
    def __getitem__(self, place: slice, /) -> AnswerList: ...

    def __getitem__(self, place: SupportsIndex | slice, /) -> Answer | AnswerList:
        found = super().__getitem__(place)
        return found if isinstance(found, Answer) else AnswerList(found)

    def __repr__(self) -> str:
        rows = ",\n ".join(map(repr, self))
        return f"[{rows}]"

    def _repr_html_(self) -> str:
        header = ("class", "probability", "", "size", "level", "time")
        return notebook_table(header, map(_row, self), right=(1, 5))


def _row(answer: Answer) -> tuple[Content, ...]:
    return (
        _lines([str(name) for name, _ in answer.top]),
        _lines([f"{probability:.1%}" for _, probability in answer.top]),
        _lines([share_bar(probability) for _, probability in answer.top]),
        "x".join(map(str, answer.size)),
        format_grid(answer.level),
        f"{1e3 * answer.seconds:.1f} ms",
    )


def _lines(cells: Sequence[Content]) -> Markup:
    """What stands in one cell, one under another."""
    return join(element("div", cell, style="height: 1.5em; line-height: 1.5") for cell in cells)
