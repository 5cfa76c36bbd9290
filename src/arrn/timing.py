"""Timing a call: warm-up, repetition, median and spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

__all__ = ["Timing", "time_call"]


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

    def __str__(self) -> str:
        return f"{self.median * 1e3:.3g} ms"


def time_call(call: Callable[[], object], repeats: int = 10, warmup: int = 2) -> Timing:
    """Times `call`; where a GPU is in use, it is waited for before and after."""

    def wait() -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    for _ in range(warmup):
        call()
    seconds = []
    for _ in range(repeats):
        wait()
        start = time.perf_counter()
        call()
        wait()
        seconds.append(time.perf_counter() - start)
    lower, median, upper = statistics.quantiles(seconds, n=4) if repeats > 1 else (seconds[0],) * 3
    return Timing(median, lower, upper)
