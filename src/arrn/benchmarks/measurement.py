"""Measuring one case in several ways, and a measured time with everything it is to be judged by."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from arrn.benchmarks.floors import Ceilings, Floors, Work
from arrn.benchmarks.settings import BenchmarkSettings
from arrn.benchmarks.ways import with_kernels
from arrn.errors import ArrnError
from arrn.timing import Timing

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


@dataclass(frozen=True)
class Attempt:
    """One way to do a case.

    Attributes:
        way: its name.
        prepare: does all that is not to be timed, and returns the call to time.
        work: what a call must do at least; None where that is not known.
        kernels: whether fast kernels are on.
        parts: how many times the call does the case.
    """

    way: str
    prepare: Callable[[], Callable[[], object]]
    work: Work | None = None
    kernels: bool = True
    parts: int = 1


def measure(
    subject: str,
    case: str,
    attempts: Sequence[Attempt],
    settings: BenchmarkSettings,
    ceilings: Ceilings,
    facts: Mapping[str, Fact],
    *,
    dtype: torch.dtype | None = None,
    memory: bool = False,
) -> list[Measurement]:
    """Measures `case` in each way, one after another; a way that fails says why, and the others go on.

    Args:
        subject: what the case belongs to.
        case: what is done.
        attempts: the ways, the reference first.
        settings: device and repetitions.
        ceilings: of the device, for the floors.
        facts: what is known of every way.
        dtype: of the arithmetic, if not the settings' own.
        memory: whether to measure peak memory too, on a device that counts it.
    """
    dtype = dtype or settings.dtype
    found: list[Measurement] = []
    reference: Timing | None = None
    for attempt in attempts:
        floors = None if attempt.work is None else ceilings.floors(attempt.work, dtype)
        watch = _Memory(settings.device, wanted=memory and settings.device.type == "cuda")
        try:
            time = _time(attempt, settings, watch)
        except Exception as error:  # compilers, graphs and full memory fail in many ways; the rest is worth having
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            found.append(Measurement(subject, case, attempt.way, None, floors, failure=reason, facts=facts))
            continue
        if attempt is attempts[0]:
            reference = time
        faster = None if reference is None else reference.median / time.median
        found.append(Measurement(subject, case, attempt.way, time, floors, faster, None, {**facts, **watch.facts}))
    return found


def _time(attempt: Attempt, settings: BenchmarkSettings, memory: _Memory) -> Timing:
    with with_kernels(attempt.kernels):
        memory.begin()
        call = attempt.prepare()
        for _ in range(settings.warmup):
            call()
        memory.settle()
        time = settings.time(call, warmup=1)  # the memory given back is taken again
        memory.end()
        return time.shared_by(attempt.parts)


@dataclass
class _Memory:
    """Peak memory of a CUDA device, above what was in use before."""

    device: torch.device
    wanted: bool
    facts: dict[str, Fact] = field(default_factory=dict)
    _allocated: int = 0
    _held: int = 0

    def begin(self) -> None:
        if self.wanted:
            gc.collect()  # what the way before had
            torch.cuda.synchronize(self.device)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
            self._allocated = torch.cuda.memory_allocated(self.device)
            self._held = torch.cuda.memory_reserved(self.device)

    def settle(self) -> None:
        """After the warm-up: what only the choice of algorithms needed is given back."""
        if self.wanted:
            torch.cuda.synchronize(self.device)
            # A graph's tensors are allocated while it is captured, so this peak is of the warm-up too.
            self.facts["peak_allocated"] = torch.cuda.max_memory_allocated(self.device) - self._allocated
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)

    def end(self) -> None:
        """What the steady state holds: its own peak, a graph's pool included."""
        if self.wanted:
            self.facts["peak_held"] = torch.cuda.max_memory_reserved(self.device) - self._held
