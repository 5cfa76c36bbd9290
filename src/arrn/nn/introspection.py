"""What a module is: without its wrappers, with hooks or without, in parameters, multiply-adds and memory."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

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
    counter = FlopCounterMode(display=False)
    _run_without_data(module, shape, counter)
    return int(counter.get_total_flops()) // 2


def forward_memory(module: nn.Module, shape: tuple[int, ...]) -> int:
    """The bytes that one evaluation on an input of `shape` takes at most at a time, the input included.

    Counted without data, in evaluation mode and without gradients. Parameters, and what an operation takes for itself
    alone, are not counted.

    >>> forward_memory(nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU()), (1, 3, 10, 10))  # 3 + 8 + 8 channels, 4 bytes each
    7600
    """
    counter = _LiveTensors()
    _run_without_data(module, shape, counter)
    return counter.most


def _run_without_data(module: nn.Module, shape: tuple[int, ...], counter: AbstractContextManager[Any]) -> None:
    dtype = next((parameter.dtype for parameter in module.parameters()), torch.get_default_dtype())
    tensors = [*module.parameters(), *module.buffers()]
    if tensors and all(tensor.is_meta for tensor in tensors) and not any(part.training for part in module.modules()):
        bare = module
    else:
        bare = copy.deepcopy(module).to("meta").eval()
    with torch.no_grad(), counter:
        bare(torch.empty(shape, dtype=dtype, device="meta"))


class _LiveTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]  # of torch, as below
    """Within it, counts the bytes of the tensors that are made and not yet dropped.

    Attributes:
        most: of them at any time.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.most = 0
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        gone = [key for key, (storage, _) in self._live.items() if storage.expired()]  # type: ignore[no-untyped-call]
        for key in gone:
            del self._live[key]
        taken = {_storage(tensor) for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, torch.Tensor)}
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor) and _storage(tensor) not in taken:  # else it is a view
                reference = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
                self._live[reference.cdata] = reference, tensor.untyped_storage().nbytes()
        self.most = max(self.most, sum(size for _, size in self._live.values()))
        return made


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
