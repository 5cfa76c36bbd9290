"""One case measured in each of several ways, the first being the reference."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from arrn.benchmarks.ceilings import Ceilings
from arrn.benchmarks.measurement import Fact, Measurement
from arrn.benchmarks.settings import BenchmarkSettings
from arrn.benchmarks.ways import kernels
from arrn.benchmarks.work import Work
from arrn.timing import Timing

__all__ = ["Attempt", "measure"]


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


def measure(
    subject: str,
    case: str,
    attempts: Sequence[Attempt],
    settings: BenchmarkSettings,
    ceilings: Ceilings,
    facts: Mapping[str, Fact],
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
        except (
            Exception
        ) as error:  # compilers, graphs and full memory fail in many ways: the rest is still worth having
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            found.append(Measurement(subject, case, attempt.way, None, floors, failure=reason, facts=facts))
            continue
        if attempt is attempts[0]:
            reference = time
        faster = None if reference is None else reference.median / time.median
        found.append(Measurement(subject, case, attempt.way, time, floors, faster, None, {**facts, **watch.facts}))
    return found


def _time(attempt: Attempt, settings: BenchmarkSettings, memory: _Memory) -> Timing:
    with kernels(attempt.kernels):
        memory.begin()
        call = attempt.prepare()
        for _ in range(settings.warmup):
            call()
        memory.settle()
        time = settings.time(call, warmup=1)  # the memory given back is taken again
        memory.end()
        return time.shared_by(attempt.parts)
