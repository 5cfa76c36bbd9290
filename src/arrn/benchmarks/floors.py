"""The floors that measured times are compared with: the work of a call, and the ceilings of the machine."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from arrn.benchmarks.settings import BenchmarkSettings
from arrn.gpu import reference_path
from arrn.nn.introspection import count_parameters
from arrn.nn.layers import CONVOLUTIONS, REPLICATE_CONVOLUTIONS, Resampling
from arrn.timing import rotating

_PASSES = 3  # forward, and backward to the input and to the weights
_OPTIMIZER_BYTES = 7 * 4


@dataclass(frozen=True)
class Work:
    """What there is to do: multiply-adds, and the fewest bytes read and written."""

    multiply_adds: int
    traffic: int


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
        product = settings.time(rotating(lambda pair: pair[0] @ pair[1], pairs))
        rates[dtype_name(dtype)] = 2 * side**3 / product.median
    return Ceilings(_bandwidth(settings, numbers), rates)


def _bandwidth(settings: BenchmarkSettings, numbers: int) -> float:
    source = torch.rand(numbers, device=settings.device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / settings.time(lambda: target.copy_(source)).median


def count_inference(network: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> Work:
    """The work of one evaluation of inputs of `shape`, the batch included.

    >>> count_inference(nn.Conv2d(3, 8, 1, bias=False), (1, 3, 10, 10), torch.float32)
    Work(multiply_adds=2400, traffic=4496)
    """
    return _count(_bare(network).eval(), shape, dtype)


def count_step(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> Work:
    """The work of one training step of `model`, which skips what its own dropout lets it skip."""
    forward = _count(_bare(model).train(), shape, dtype)
    traffic = _PASSES * forward.traffic + _OPTIMIZER_BYTES * count_parameters(model)
    return Work(_PASSES * forward.multiply_adds, traffic)


def _bare(network: nn.Module) -> nn.Module:
    """A copy without data, whose convolutions pad by themselves: a padded copy is no part of a floor."""
    bare = copy.deepcopy(network).to("meta")
    for name, layer in list(bare.named_modules()):
        ndim = next((n for n, kind in REPLICATE_CONVOLUTIONS.items() if type(layer) is kind), None)
        if ndim is not None:
            like: Any = layer
            plain = CONVOLUTIONS[ndim](
                like.in_channels,
                like.out_channels,
                like.kernel_size,
                stride=like.stride,
                padding=like.padding,
                dilation=like.dilation,
                groups=like.groups,
                bias=like.bias is not None,
                device="meta",
            )
            if not name:
                return plain
            bare.set_submodule(name, plain)
    return bare


def _count(bare: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> Work:
    operations, traffic = FlopCounterMode(display=False), _Traffic()
    with reference_path(), torch.no_grad(), operations, traffic, traffic.whole_resamplings(bare):
        bare(torch.empty(shape, device="meta"))
    return Work(int(operations.get_total_flops()) // 2, traffic.numbers * dtype.itemsize)


class _Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the numbers that convolutions and matrix products read and write."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = 0
        self._within = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func._overloadpacket in flop_registry and not self._within:
            tensors = [value for value in (*args, *(kwargs or {}).values(), out) if isinstance(value, torch.Tensor)]
            self.numbers += sum(map(_stored, tensors))
        return out

    @contextmanager
    def whole_resamplings(self, network: nn.Module) -> Iterator[None]:
        """Takes a resampling as one operation, whatever products it is made of."""

        def enter(module: nn.Module, args: tuple[Any, ...]) -> None:
            self._within += 1

        def leave(module: nn.Module, args: tuple[Any, ...], out: torch.Tensor) -> None:
            self._within -= 1
            if out is not args[0]:
                self.numbers += _stored(args[0]) + _stored(out)

        hooks = []
        for module in network.modules():
            if isinstance(module, Resampling):
                hooks += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def _stored(tensor: torch.Tensor) -> int:
    """The numbers of a tensor that are in memory: an expanded axis has one."""
    return math.prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
