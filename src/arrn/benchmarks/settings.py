"""What is measured and how often, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from arrn.errors import ArrnError
from arrn.models import create_model, model_options
from arrn.timing import Timing, time_call

BASELINES = ("resnet18_small_stem", "resnet18", "mobilenet_v3_large")
"""What an ARRN's inference is compared with, unless others are asked for."""

_CACHE_OF_A_CPU = 2**26  # of a large one: a smaller cache is cleared just as well
_MOST_INPUTS = 8
_MOST_GIGABYTES, _MOST_WORKERS = 100_000, 1000


@dataclass(frozen=True)
class BenchmarkSettings:
    """What to measure.

    Attributes:
        model: a name that `create_model` takes.
        options: the model's.
        device: where.
        batches: batch sizes; none takes each subject's own.
        resolutions: of inference; none takes those from the model's top down to an eighth.
        baselines: the networks that inference is compared with.
        compiled: whether `torch.compile` is among the ways.
        quick: a look at whether all works: small, few repetitions, no meaningful times.
        network: the folder of a saved network that is deployed in the place of the model; for a server under load, of a
            saved or exported one.
        seconds: that the load on a server lasts; each way of reading data takes a third of it.
        data: the folder of parquet shards that is repeated to the sizes of streamed sets.
        gigabytes: those sizes.
        workers: processes that decode what is streamed.
    """

    model: str = "arrn_cifar10"
    options: Mapping[str, Any] = field(default_factory=dict)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    batches: Sequence[int] = ()
    resolutions: Sequence[int] = ()
    baselines: Sequence[str] = BASELINES
    compiled: bool = True
    quick: bool = False
    network: Path | None = None
    seconds: float = 120.0
    data: Path | None = None
    gigabytes: Sequence[float] = (2.0, 6.0)
    workers: int = 2

    def __post_init__(self) -> None:
        for name in ("batches", "resolutions"):
            if any(number < 1 for number in getattr(self, name)):
                raise ArrnError(f"{name} must be whole numbers of at least 1, got {list(getattr(self, name))}")
        if not 1 <= self.seconds <= 86_400:
            raise ArrnError(f"--seconds must be 1 to 86,400, got {self.seconds:g}")
        if not self.gigabytes or not all(0 < size <= _MOST_GIGABYTES for size in self.gigabytes):
            raise ArrnError(
                f"--gigabytes must be sizes above 0 and up to {_MOST_GIGABYTES:,}, got {list(self.gigabytes)}"
            )
        if not 0 <= self.workers <= _MOST_WORKERS:
            raise ArrnError(f"--workers must be 0 to {_MOST_WORKERS:,}, got {self.workers}")

    @property
    def dtype(self) -> torch.dtype:
        """That of the arithmetic: bfloat16 on a GPU that has it, as in training."""
        fast = self.device.type == "cuda" and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if fast else torch.float32

    @property
    def warmup(self) -> int:
        """Calls before the first reading; a step is recorded as a CUDA graph at its fourth."""
        return 5 if self.device.type == "cuda" else 1 if self.quick else 2

    def time(self, call: Callable[[], object], warmup: int | None = None) -> Timing:
        """The time of one call: the median of ten readings, each long enough for the clock."""
        repeats, at_least = (3, 0.0) if self.quick else (10, 0.01)
        return time_call(call, repeats, self.warmup if warmup is None else warmup, self.device, at_least)

    def batches_or(self, cuda: Sequence[int], others: Sequence[int]) -> Sequence[int]:
        """The batch sizes asked for, or the usual ones: those that fill a GPU, or what others do in seconds."""
        usual = cuda if self.device.type == "cuda" else others
        return self.batches or (sorted({min(4, batch) for batch in usual}, reverse=True) if self.quick else usual)

    def build(self, **options: Any) -> nn.Module:
        """The model, with its own options and these."""
        torch.manual_seed(0)
        return create_model(self.model, **{**self.options, **options})

    def takes(self, option: str) -> bool:
        """Whether the model has an option of that name."""
        return option in model_options(self.model)

    def inputs_beyond_the_cache(self, bytes_each: int) -> int:
        """How many inputs of that size to take in turn, so that none is in the cache when its turn comes."""
        if self.quick:
            return 2
        cache = _CACHE_OF_A_CPU
        if self.device.type == "cuda":
            cache = int(torch.cuda.get_device_properties(self.device).L2_cache_size)
        return min(_MOST_INPUTS, max(2, -(-2 * cache // bytes_each)))
