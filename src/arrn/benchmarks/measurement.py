"""A measured time with everything it is to be judged by."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from arrn.benchmarks.ceilings import Floors
from arrn.errors import ArrnError
from arrn.timing import Timing

__all__ = ["Fact", "Measurement"]

Fact: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True)
class Measurement:
    """The time of doing one thing in one way.

    Attributes:
        subject: "step", "inference", "resampling" or "depthwise".
        case: what was done, in words; the same in every way.
        way: how, the first of a case being what the others are compared with.
        time: of one call; None where it failed.
        floors: the least that traffic and arithmetic take.
        faster: the reference's time in the same run over this one.
        failure: why there is no time.
        facts: what else is known, by name: multiply-adds, peak memory and the like.
    """

    subject: str
    case: str
    way: str
    time: Timing | None = None
    floors: Floors | None = None
    faster: float | None = None
    failure: str | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        """What the same measurement of another run is found by."""
        return self.subject, self.case, self.way

    @property
    def over_floor(self) -> float | None:
        """The time over the larger of its floors: 1 is the best there can be."""
        return None if self.time is None or self.floors is None else self.time.median / self.floors.binding

    def noting(self, **facts: Fact) -> Measurement:
        """The same, with more facts."""
        return dataclasses.replace(self, facts={**self.facts, **facts})

    def document(self) -> dict[str, Any]:
        """The measurement as JSON holds it."""
        return {
            "subject": self.subject,
            "case": self.case,
            "way": self.way,
            "seconds": None if self.time is None else self.time.median,
            "lower": None if self.time is None else self.time.lower,
            "upper": None if self.time is None else self.time.upper,
            "faster": self.faster,
            "traffic_floor": None if self.floors is None else self.floors.traffic,
            "arithmetic_floor": None if self.floors is None else self.floors.arithmetic,
            "over_floor": self.over_floor,
            "failure": self.failure,
            "facts": dict(self.facts),
        }

    @classmethod
    def read(cls, entry: Any) -> Measurement:
        """From what `document` made.

        Raises:
            ArrnError: says what is missing or wrong.
        """
        if not isinstance(entry, dict):
            raise ArrnError(f"a measurement must be an object with subject, case and way, got {entry!r}")
        subject, case, way = (entry.get(name) for name in ("subject", "case", "way"))
        if not (isinstance(subject, str) and isinstance(case, str) and isinstance(way, str)):
            raise ArrnError(f"a measurement's subject, case and way must be texts, got {subject!r}, {case!r}, {way!r}")
        times = _numbers(entry, "seconds", "lower", "upper")
        floors = _numbers(entry, "traffic_floor", "arithmetic_floor")
        facts = entry.get("facts") or {}
        if not isinstance(facts, dict):
            raise ArrnError(f"the facts of a measurement must be an object, got {facts!r}")
        return cls(
            subject,
            case,
            way,
            time=None if times is None else Timing(*times),
            floors=None if floors is None else Floors(*floors),
            faster=entry.get("faster"),
            failure=entry.get("failure"),
            facts=facts,
        )


def _numbers(entry: Mapping[str, Any], *names: str) -> list[float] | None:
    """The positive numbers of those names; None where all are null."""
    values = [entry.get(name) for name in names]
    if all(value is None for value in values):
        return None
    if not all(isinstance(value, int | float) and value > 0 for value in values):
        raise ArrnError(f"{', '.join(names)} must be numbers above 0, or all null; got {values}")
    return [float(value) for value in values if value is not None]
