"""Timing a call: warm-up, repetition, median and spread, by the clock of the device that does the work."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

_CPU = torch.device("cpu")
_MOST_CALLS = 1000

Input = TypeVar("Input")


@dataclass(frozen=True)
class Timing:
    """Seconds for one call: the median over repetitions, and the quartiles as the spread."""

    median: float
    lower: float
    upper: float

    @property
    def spread(self) -> float:
        """The interquartile range relative to the median."""
        return (self.upper - self.lower) / self.median

    def shared_by(self, count: int) -> Timing:
        """The seconds of each of `count` equal parts of the call."""
        return Timing(self.median / count, self.lower / count, self.upper / count)

    def __str__(self) -> str:
        return f"{self.median * 1e3:.3g} ms"


def time_call(
    call: Callable[[], object],
    repeats: int = 10,
    warmup: int = 2,
    device: torch.device = _CPU,
    at_least: float = 0.0,
) -> Timing:
    """Times `call`, by CUDA events where `device` is a GPU that has them, by the host's clock elsewhere.

    Args:
        call: what to time; on a GPU its work must be on the current stream.
        repeats: readings that the median is of.
        warmup: calls before the first reading: compilation and the choice of algorithms stay out.
        device: where the work is done.
        at_least: seconds between the two ends of a reading. A short call is made as often as it takes, one
            after another as in real use: the host prepares the next while the device does the last.
    """
    for _ in range(warmup):
        call()
    calls = 1
    if at_least > 0:
        calls = min(_MOST_CALLS, max(1, math.ceil(at_least / max(_seconds(call, 1, device), 1e-9))))
    seconds = [_seconds(call, calls, device) / calls for _ in range(repeats)]
    lower, median, upper = statistics.quantiles(seconds, n=4) if repeats > 1 else (seconds[0],) * 3
    return Timing(median, lower, upper)


def rotating(call: Callable[[Input], object], inputs: Sequence[Input]) -> Callable[[], object]:
    """`call` on each of `inputs` in turn, again and again: what stays in a cache is not what is measured.

    >>> following = rotating(lambda x: x, ["first", "second"])
    >>> following(), following(), following()
    ('first', 'second', 'first')
    """
    following = itertools.cycle(inputs)
    return lambda: call(next(following))


def _seconds(call: Callable[[], object], calls: int, device: torch.device) -> float:
    """The seconds of `calls` calls; the device is idle before and after."""
    if device.type != "cuda":
        _wait(device)
        began = time.perf_counter()
        for _ in range(calls):
            call()
        _wait(device)
        return time.perf_counter() - began
    with torch.cuda.device(device):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        start.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3  # events count milliseconds


def _wait(device: torch.device) -> None:
    if device.type == "mps":
        torch.mps.synchronize()
