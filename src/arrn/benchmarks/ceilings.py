"""The two ceilings of a device, measured: memory bandwidth, and the rate of matrix products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from arrn.benchmarks.settings import BenchmarkSettings
from arrn.benchmarks.work import Work
from arrn.timing import in_turn

__all__ = ["Ceilings", "Floors", "dtype_name", "measure_ceilings"]


@dataclass(frozen=True)
class Floors:
    """The least seconds that moving the bytes and doing the arithmetic take, each alone."""

    traffic: float
    arithmetic: float

    @property
    def binding(self) -> float:
        """The larger: no version runs much faster."""
        return max(self.traffic, self.arithmetic)


@dataclass(frozen=True)
class Ceilings:
    """What the device did at its best in this run.

    Attributes:
        bandwidth: bytes a second, those read and those written both counted, of a large copy.
        rates: operations a second (two to a multiply-add) of a large matrix product, for each dtype by name.
    """

    bandwidth: float
    rates: Mapping[str, float]

    def floors(self, work: Work, dtype: torch.dtype) -> Floors:
        """The floors of `work` done in `dtype`."""
        return Floors(work.traffic / self.bandwidth, 2 * work.multiply_adds / self.rates[dtype_name(dtype)])


def dtype_name(dtype: torch.dtype) -> str:
    """A dtype as JSON holds it.

    >>> dtype_name(torch.bfloat16)
    'bfloat16'
    """
    return str(dtype).removeprefix("torch.")


def measure_ceilings(settings: BenchmarkSettings) -> Ceilings:
    """Measures a copy that no cache holds, and square matrix products in float32 and the benchmark's own dtype.

    Random data: zeros can run faster than real data will.
    """
    device = settings.device
    large = device.type == "cuda"
    numbers = 2**20 if settings.quick else 2**28 if large else 2**25
    side = 256 if settings.quick else 8192 if large else 2048
    rates = {}
    for dtype in dict.fromkeys((torch.float32, settings.dtype)):
        pairs = [[torch.randn(side, side, device=device).to(dtype) for _ in range(2)] for _ in range(2)]
        product = settings.time(in_turn(lambda pair: pair[0] @ pair[1], pairs))
        rates[dtype_name(dtype)] = 2 * side**3 / product.median
    return Ceilings(_bandwidth(settings, numbers), rates)


def _bandwidth(settings: BenchmarkSettings, numbers: int) -> float:
    source = torch.rand(numbers, device=settings.device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / settings.time(lambda: target.copy_(source)).median
