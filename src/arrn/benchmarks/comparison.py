"""Two benchmarks side by side: what moved, and what only one of them has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arrn.benchmarks.measurement import Measurement
from arrn.benchmarks.report import BenchmarkReport
from arrn.timing import Timing

__all__ = ["Change", "Comparison", "compare", "describe_missing"]


@dataclass(frozen=True)
class Change:
    """One measurement in two runs: the case and the way, and both times."""

    key: tuple[str, str, str]
    before: Timing
    after: Timing

    @property
    def relative(self) -> float:
        """The change of the time: -0.5 is half the time."""
        return self.after.median / self.before.median - 1

    @property
    def moved(self) -> bool:
        """Whether the times differ by more than either run's own spread."""
        spread = max(time.upper - time.lower for time in (self.before, self.after))
        return abs(self.after.median - self.before.median) > spread


@dataclass(frozen=True)
class Comparison:
    """What two benchmarks say together.

    Attributes:
        changes: what both measured, in the order of the second.
        gone: what only the first has a time for, in words.
        new: what only the second has a time for, in words.
        differences: what makes the runs less comparable, in words: hardware, versions, settings.
    """

    changes: Sequence[Change]
    gone: Sequence[str]
    new: Sequence[str]
    differences: Sequence[str]


def compare(before: BenchmarkReport, after: BenchmarkReport) -> Comparison:
    """Matches the measurements of two runs by subject, case and way; one without a time counts as missing."""
    first, second = _times(before.measurements), _times(after.measurements)
    changes = [Change(key, first[key], time) for key, time in second.items() if key in first]
    gone = describe_missing([key for key in first if key not in second], list(second))
    new = describe_missing([key for key in second if key not in first], list(first))
    return Comparison(changes, gone, new, _differences(before, after))


def describe_missing(keys: Sequence[tuple[str, str, str]], other: Sequence[tuple[str, str, str]]) -> list[str]:
    """The keys that `other` does not have, a line each; a subject that it has nothing of is one line.

    >>> describe_missing([("step", "a", "b"), ("step", "a", "c"), ("depthwise", "d", "e")], [("depthwise", "x", "y")])
    ['step: all 2 measurements', 'depthwise: d, e']
    """
    known = {subject for subject, _, _ in other}
    lines = []
    for subject in dict.fromkeys(subject for subject, _, _ in keys):
        group = [f"{subject}: {case}, {way}" for place, case, way in keys if place == subject]
        lines += group if subject in known else [f"{subject}: all {len(group)} measurements"]
    return lines


def _times(measurements: Sequence[Measurement]) -> dict[tuple[str, str, str], Timing]:
    return {measured.key: measured.time for measured in measurements if measured.time is not None}


def _differences(before: BenchmarkReport, after: BenchmarkReport) -> list[str]:
    pairs = [
        *((before.provenance, after.provenance, name) for name in ("gpu", "processor", "threads", "torch", "commit")),
        *((before.settings, after.settings, name) for name in ("device", "quick", "options", "compiled")),
    ]
    return [
        f"{name}: {first.get(name)} -> {second.get(name)}"
        for first, second, name in pairs
        if first.get(name) != second.get(name)
    ]
