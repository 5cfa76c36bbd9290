"""What a module is: without its wrappers, with hooks or without, in parameters, multiply-adds and memory."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.flop_counter import FlopCounterMode

from arrn.memory import PeakMemory
from arrn.nn.constancy import looks_at_gates

_PARALLEL = (nn.DataParallel, DistributedDataParallel)
COMPILED = "_orig_mod"
"""What `torch.compile` calls the module that it wraps."""


def unwrap(module: nn.Module) -> nn.Module:
    """The module itself, out of its wrappers, which run it but are no part of it."""
    while (inner := _inner(module)) is not None:
        module = inner
    return module


def copy_unwrapped(network: nn.Module) -> nn.Module:
    """A deep copy without wrappers inside it: ``net.features = nn.DataParallel(net.features)`` is common."""
    network = copy.deepcopy(network)
    for name, module in reversed(list(network.named_modules(remove_duplicate=False))):  # the innermost come first
        if _inner(module) is not None:
            network.set_submodule(name, unwrap(module))
    return network


def _inner(module: nn.Module) -> nn.Module | None:
    return module.module if isinstance(module, _PARALLEL) else dict(module.named_children()).get(COMPILED)


def has_hooks(module: nn.Module) -> bool:
    """Whether anything is called when `module` is, forward or backward, beside the module itself.

    >>> layer = nn.Identity()
    >>> handle = layer.register_forward_hook(lambda module, inputs, output: output + 1)
    >>> has_hooks(layer)
    True
    """
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def count_parameters(module: nn.Module) -> int:
    """The number of parameters, shared ones counted once."""
    return sum(parameter.numel() for parameter in module.parameters())


def first_not_finite(tensors: Mapping[str, torch.Tensor]) -> str | None:
    """The name of the first tensor that holds what is no number, or an infinite one; None if there is none.

    >>> first_not_finite({"a": torch.ones(2), "b": torch.tensor([1.0, float("nan")])})
    'b'
    """
    for name, tensor in tensors.items():
        if (tensor.is_floating_point() or tensor.is_complex()) and not bool(tensor.isfinite().all()):
            return name
    return None


def multiply_adds(module: nn.Module, shape: tuple[int, ...]) -> int:
    """The multiply-adds of one evaluation on an input of `shape`: convolutions and matrix products.

    Counted without data, so nothing is computed, in evaluation mode. Element-wise work and Fourier transforms are not
    counted, and a product of complex numbers counts as one.

    >>> multiply_adds(nn.Conv2d(3, 8, 1), (1, 3, 10, 10))
    2400
    """
    bare, x = _without_numbers(module, shape)
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        bare(x)
    return int(counter.get_total_flops()) // 2


def multiply_adds_of_noise(module: nn.Module, shape: tuple[int, ...]) -> int:
    """The multiply-adds of one evaluation on white noise of `shape`, which has details in every band of its grid.

    A tied network does less work for signals with details, such as natural images, than for other signals;
    `multiply_adds` counts an upper limit for any signal. Other networks do the same work for all signals, and are not
    run.
    """
    tensors = [*module.parameters(), *module.buffers()]
    if not any(map(looks_at_gates, module.modules())) or any(tensor.is_meta for tensor in tensors):
        return multiply_adds(module, shape)
    copied = copy.deepcopy(module).cpu().float().eval()
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        copied(noise)
    return int(counter.get_total_flops()) // 2


def forward_memory(module: nn.Module, shape: tuple[int, ...]) -> int:
    """The bytes that the tensors of one evaluation on an input of `shape` take at a time at most, beside the input.

    Counted without data, in evaluation mode and without gradients. Parameters, and what an operation takes for itself
    alone, are not counted.

    >>> forward_memory(nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU()), (1, 3, 10, 10))  # 8 + 8 channels, 4 bytes each
    6400
    """
    bare, x = _without_numbers(module, shape)
    with torch.no_grad(), PeakMemory(x.device, [x, *bare.parameters(), *bare.buffers()]) as measured:
        bare(x)
    return measured.peak


def _without_numbers(module: nn.Module, shape: tuple[int, ...]) -> tuple[nn.Module, torch.Tensor]:
    """The module in evaluation mode and an input of `shape`, on the meta device."""
    dtype = next((parameter.dtype for parameter in module.parameters()), torch.get_default_dtype())
    tensors = [*module.parameters(), *module.buffers()]
    if tensors and all(tensor.is_meta for tensor in tensors) and not any(part.training for part in module.modules()):
        bare = module
    else:
        bare = copy.deepcopy(module).to("meta").eval()
    return bare, torch.empty(shape, dtype=dtype, device="meta")
