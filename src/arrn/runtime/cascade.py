"""The cascade: the lowest level answers first, and inputs that it is not sure of climb; what that costs on average."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..errors import ArrnError
from .files import Array
from .levels import Policy, as_policy

_POINTS = 100  # thresholds that a calibration keeps, about
_ABOVE_ALL = 1 + 2.0**-20  # a threshold that no probability reaches, whatever the rounding


def check_threshold(threshold: float) -> float:
    """The threshold as a number; refuses what is none, such as 90 for 90%."""
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= _ABOVE_ALL:
        raise ArrnError(f"the threshold of a cascade is a probability from 0 to 1, got {threshold!r}")
    return float(threshold)


@dataclass(frozen=True)
class Point:
    """One threshold on the held-out inputs.

    Attributes:
        threshold: an input stops climbing where a probability reaches it; None is no cascade: each input runs on the
            level of its own size alone.
        multiply_adds: of all levels that ran, on average over the inputs.
        accuracy: the share of right answers.
    """

    threshold: float | None
    multiply_adds: float
    accuracy: float


@dataclass(frozen=True)
class Cascade:
    """What thresholds cost and bring, measured on held-out inputs.

    Attributes:
        points: by ascending threshold, the first 0 (only the lowest level runs).
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

    def threshold_for(self, budget: float) -> float | None:
        """The largest threshold that kept the budget on the held-out inputs; None where no cascade is needed for it.

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
        return fitting[-1].threshold

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
                Point(_number(point["threshold"]), _number(point["multiply_adds"]), _number(point["accuracy"]))
                for point in document["points"]
            )
            plain = Point(None, *(_number(document["plain"][name]) for name in ("multiply_adds", "accuracy")))
            policy = as_policy(document.get("policy", "exact"))
            cascade = cls(points, plain, int(document["samples"]), str(document.get("source", "")), policy)
        except (KeyError, TypeError, ValueError) as error:
            raise ArrnError(f"the calibration of the cascade cannot be read: {error}") from None
        return cascade


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"a finite number is expected, got {value!r:.40}")
    return float(value)


def run_cascade(
    confidences: Array, right: Array, highest: Array, costs: Sequence[int], threshold: float
) -> tuple[Array, Array]:
    """For each input, the multiply-adds of all levels that ran, and whether the answer was right.

    Args:
        confidences: the largest probability, shape (inputs, levels), levels highest first.
        right: whether that class was right, of the same shape.
        highest: the level of each input's own size, shape (inputs,); levels above it count for nothing.
        costs: multiply-adds of each level.
        threshold: see `Predictor`.
    """
    inputs, levels = confidences.shape
    # The lowest level, the largest number, that is sure enough; else the input's own.
    climbing = np.arange(levels - 1, -1, -1)
    sure = confidences[:, climbing] >= threshold
    stops = np.where(sure.any(axis=1), climbing[sure.argmax(axis=1)], 0)
    stops = np.maximum(stops, highest)
    paid = np.cumsum(np.asarray(costs, np.float64)[::-1])[::-1]
    return paid[stops], right[np.arange(inputs), stops]


def run_plain(right: Array, highest: Array, costs: Sequence[int]) -> tuple[Array, Array]:
    """What `run_cascade` gives, without a cascade: each input on the level of its own size alone."""
    return np.asarray(costs, np.float64)[highest], right[np.arange(len(highest)), highest]


def find_points(confidences: Array, right: Array, highest: Array, costs: Sequence[int]) -> tuple[Point, ...]:
    """The cost and the accuracy of thresholds, on held-out inputs; the arguments are those of `run_cascade`.

    >>> sure, right = np.array([[0.9, 0.8], [0.9, 0.4]]), np.array([[True, True], [True, False]])
    >>> found = find_points(sure, right, np.array([0, 0]), (300, 100))
    >>> [(point.multiply_adds, point.accuracy) for point in found]
    [(100.0, 0.5), (250.0, 1.0), (400.0, 1.0)]
    """
    levels = np.arange(confidences.shape[1])
    # Only where an input may go on does its probability decide anything.
    deciding = np.unique(confidences[levels[None, :] > highest[:, None]])
    between = (deciding[1:] + deciding[:-1]) / 2  # so that rounding changes no decision
    if len(between) > _POINTS:
        between = np.quantile(between, np.linspace(0, 1, _POINTS), method="nearest")
    thresholds = np.unique([0.0, *between, _ABOVE_ALL])
    points: list[Point] = []
    for threshold in thresholds.tolist():
        paid, hits = run_cascade(confidences, right, highest, costs, threshold)
        point = Point(threshold, float(paid.mean()), float(hits.mean()))
        if not points or point.multiply_adds > points[-1].multiply_adds:
            points.append(point)
    return tuple(points)
