"""What a network costs: parameters and multiply-adds, resampling included."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

__all__ = ["count_parameters", "multiply_adds"]


def count_parameters(module: nn.Module) -> int:
    """The number of parameters, shared ones counted once."""
    return sum(parameter.numel() for parameter in module.parameters())


def multiply_adds(module: nn.Module, shape: tuple[int, ...]) -> int:
    """The multiply-adds of one evaluation on an input of `shape`: convolutions and matrix products.

    Counted without data, so nothing is computed, in evaluation mode. Element-wise work and Fourier transforms are not
    counted, and a product of complex numbers counts as one.

    >>> multiply_adds(nn.Conv2d(3, 8, 1), (1, 3, 10, 10))
    2400
    """
    dtype = next((parameter.dtype for parameter in module.parameters()), torch.get_default_dtype())
    tensors = [*module.parameters(), *module.buffers()]
    if tensors and all(tensor.is_meta for tensor in tensors) and not any(part.training for part in module.modules()):
        bare = module
    else:
        bare = copy.deepcopy(module).to("meta").eval()
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        bare(torch.empty(shape, dtype=dtype, device="meta"))
    return int(counter.get_total_flops()) // 2
