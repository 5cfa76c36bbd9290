"""The cascade: a low level answers first, and inputs that it is not sure of climb; what that costs on average."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, combinations, islice
from typing import Any

import numpy as np

from ..errors import ArrnError
from .files import Array
from .levels import Policy, as_policy

_THRESHOLDS = 100  # that a calibration tries for each choice of levels, about
_CHOICES = 255  # of levels, at most: all of a ladder with 8 levels
_MOST_LEVELS = 64
_ABOVE_ALL = 1 + 2.0**-20  # a threshold that no probability reaches, whatever the rounding


def check_threshold(threshold: object) -> float:
    """The threshold as a number; refuses what is none, such as 90 for 90%."""
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= _ABOVE_ALL:
        raise ArrnError(f"the threshold of a cascade is a probability from 0 to 1, got {threshold!r}")
    return float(threshold)


@dataclass(frozen=True)
class Climb:
    """How far inputs climb, and over which levels.

    Attributes:
        threshold: an input stops where a probability reaches it.
        levels: which are visited, 0 for the highest; None: all. An input never goes above the level of its own size:
            it visits this one in the place of higher ones.
    """

    threshold: float
    levels: tuple[int, ...] | None = None

    def visits(self, own: int, count: int) -> list[int]:
        """The levels that an input visits, the first last, if no probability reaches the threshold.

        Args:
            own: the level of its size.
            count: how many levels the network has.

        >>> Climb(0.9, levels=(0, 2)).visits(own=1, count=3)
        [1, 2]
        """
        return sorted({max(level, own) for level in (range(max(count, 1)) if self.levels is None else self.levels)})


@dataclass(frozen=True)
class Point:
    """What one climb costs and brings on the held-out inputs.

    Attributes:
        threshold: of the climb; None is no cascade: each input runs on the level of its own size alone.
        multiply_adds: of all levels that ran, on average over the inputs.
        accuracy: the share of right answers.
        levels: of the climb.
    """

    threshold: float | None
    multiply_adds: float
    accuracy: float
    levels: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Cascade:
    """What climbs cost and bring, measured on held-out inputs.

    Attributes:
        points: by ascending cost, the first with threshold 0 (only one level runs).
        plain: what runs without a cascade, which may cost less than climbing does.
        samples: how many inputs were held out.
        source: which they were, in words.
        policy: by which the level of an input's own size was chosen.
    """

    points: tuple[Point, ...]
    plain: Point
    samples: int
    source: str = ""
    policy: Policy = "exact"

    def __post_init__(self) -> None:
        if not self.points or self.points[0].threshold != 0:
            raise ArrnError("a cascade needs points, and the threshold of the first must be 0")

    def climb_for(self, budget: float) -> Climb | None:
        """The last of the points that kept the budget on the held-out inputs; None where no cascade is needed for it.

        Args:
            budget: million multiply-adds for an input, on average.

        Raises:
            ArrnError: for less than the lowest level alone takes.
        """
        if isinstance(budget, bool) or not isinstance(budget, int | float) or math.isnan(budget):
            raise ArrnError(f"a budget is a number of million multiply-adds, got {budget!r}")
        if self.plain.multiply_adds <= 1e6 * budget:
            return None
        fitting = [point for point in self.points if point.multiply_adds <= 1e6 * budget]
        if not fitting:
            least = self.points[0].multiply_adds / 1e6
            raise ArrnError(
                f"a budget of {budget:g} million multiply-adds is too small: the lowest level alone takes {least:.3g}"
            )
        return Climb(check_threshold(fitting[-1].threshold), fitting[-1].levels)

    def to_json(self) -> dict[str, Any]:
        """All of it as data that JSON holds."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Cascade:
        """The cascade that `to_json` wrote.

        Raises:
            ArrnError: for what it did not write.
        """
        try:
            points = tuple(
                Point(_number(point["threshold"]), *_measured(point), _levels(point.get("levels")))
                for point in document["points"]
            )
            plain = Point(None, *_measured(document["plain"]))
            policy = as_policy(document.get("policy", "exact"))
            cascade = cls(points, plain, int(document["samples"]), str(document.get("source", "")), policy)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ArrnError(f"the calibration of the cascade cannot be read: {error}") from None
        return cascade


def _measured(point: Mapping[str, Any]) -> tuple[float, float]:
    return _number(point["multiply_adds"]), _number(point["accuracy"])


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"a finite number is expected, got {value!r:.40}")
    return float(value)


def _levels(value: object) -> tuple[int, ...] | None:
    """The levels of a point; older calibrations name none, and visit all."""
    if value is None:
        return None
    if not isinstance(value, list) or not value or any(type(n) is not int or not 0 <= n < _MOST_LEVELS for n in value):
        raise ValueError(f"a list of numbers of levels is expected, got {value!r:.40}")
    return tuple(value)


def run_cascade(
    confidences: Array, right: Array, highest: Array, costs: Sequence[int], climb: Climb
) -> tuple[Array, Array]:
    """For each input, the multiply-adds of all levels that ran, and whether the answer was right.

    Args:
        confidences: the largest probability, shape (inputs, levels), levels highest first.
        right: whether that class was right, of the same shape.
        highest: the level of each input's own size, shape (inputs,); levels above it count for nothing.
        costs: multiply-adds of each level.
        climb: see `Climb`.
    """
    climbing = _climbing(highest, climb.levels, len(costs))
    paid = np.asarray(costs, np.float64)[climbing]
    paid[:, 1:][climbing[:, 1:] == climbing[:, :-1]] = 0  # at its own level an input stays, and pays once
    sure = np.take_along_axis(confidences, climbing, axis=1) >= climb.threshold
    sure[:, -1] = True
    inputs, stops = np.arange(len(highest)), sure.argmax(axis=1)
    return paid.cumsum(axis=1)[inputs, stops], right[inputs, climbing[inputs, stops]]


def _climbing(highest: Array, levels: Sequence[int] | None, count: int) -> Array:
    """The level of each input at each step of its climb, shape (inputs, steps)."""
    steps = sorted(range(count) if levels is None else levels, reverse=True)
    return np.maximum(steps, highest[:, None])


def run_plain(right: Array, highest: Array, costs: Sequence[int]) -> tuple[Array, Array]:
    """What `run_cascade` gives, without a cascade: each input on the level of its own size alone."""
    return np.asarray(costs, np.float64)[highest], right[np.arange(len(highest)), highest]


def find_points(confidences: Array, right: Array, highest: Array, costs: Sequence[int]) -> tuple[Point, ...]:
    """The climbs that no other one beats: none that costs as much or less is as accurate on the held-out inputs.

    Each choice of levels is tried at many thresholds. What costs as much as no cascade is left out. The arguments are
    those of `run_cascade`.

    >>> sure, right = np.array([[0.9, 0.8], [0.9, 0.4]]), np.array([[True, True], [True, False]])
    >>> found = find_points(sure, right, np.array([0, 0]), (300, 100))
    >>> [(point.levels, point.multiply_adds, point.accuracy) for point in found]
    [((1,), 100.0, 0.5), ((0, 1), 250.0, 1.0)]
    """
    count = len(costs)
    # Few levels first, and of as many those that reach the highest: the first ones are the best in a long ladder.
    choices = chain.from_iterable(combinations(range(count), visits) for visits in range(1, count + 1))
    points: list[Point] = []
    for levels in islice(choices, _CHOICES):
        for threshold in _thresholds(confidences, _climbing(highest, levels, count)):
            paid, hits = run_cascade(confidences, right, highest, costs, Climb(threshold, levels))
            points.append(Point(threshold, float(paid.mean()), float(hits.mean()), levels))
    points.sort(key=lambda point: (point.multiply_adds, -point.accuracy))
    plain = float(run_plain(right, highest, costs)[0].mean())
    front = points[:1]
    for point in points:
        if point.accuracy > front[-1].accuracy and point.multiply_adds < plain:
            front.append(point)
    return tuple(front)


def _thresholds(confidences: Array, climbing: Array) -> list[float]:
    """The thresholds that are worth a try: 0, and some between the probabilities that decide."""
    # Only where an input may go on does its probability decide anything.
    deciding = np.unique(np.take_along_axis(confidences, climbing, axis=1)[climbing > climbing[:, -1:]])
    between = (deciding[1:] + deciding[:-1]) / 2  # so that rounding changes no decision
    if len(between) > _THRESHOLDS:
        between = np.quantile(between, np.linspace(0, 1, _THRESHOLDS), method="nearest")
    found: list[float] = np.unique([0.0, *between]).tolist()
    return found
