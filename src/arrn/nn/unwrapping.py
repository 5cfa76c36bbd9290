"""Taking off what `DataParallel`, `DistributedDataParallel` and `torch.compile` put around a network."""

from __future__ import annotations

import copy

from torch import nn
from torch.nn.parallel import DistributedDataParallel

__all__ = ["COMPILED", "copy_unwrapped", "unwrap"]

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
