"""What a network must at least do, counted: multiply-adds, and bytes through memory.

The floor of the traffic takes norms, activations, additions and dropout as free, since they can be fused into
a neighbour: each convolution, matrix product and resampling reads its inputs (weights included) once and writes
its output once, in the arithmetic's own element size. A training step does that three times (forward; the
gradient of the input; the gradient of the weights), then the optimiser reads weight, gradient and two moments
and writes weight and moments, in float32: AdamW's 7 numbers of 4 bytes for each parameter. Its multiply-adds are
three times those of the forward pass.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from arrn.gpu import reference_path
from arrn.nn.convolution import CONVOLUTIONS, REPLICATE_CONVOLUTIONS
from arrn.nn.cost import count_parameters
from arrn.nn.resampling import Resampling

__all__ = ["Work", "count_inference", "count_step"]

_PASSES = 3  # forward, and backward to the input and to the weights
_OPTIMIZER_BYTES = 7 * 4


@dataclass(frozen=True)
class Work:
    """What there is to do: multiply-adds, and the fewest bytes read and written."""

    multiply_adds: int
    traffic: int


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
