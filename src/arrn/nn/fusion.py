"""Folding norms into the convolutions before them, for inference."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import TypeVar

import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from arrn.nn.normalization import BatchRMSNorm

__all__ = ["fold_batch_norms"]

Module = TypeVar("Module", bound=nn.Module)

_CONVOLUTION = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def fold_batch_norms(module: Module) -> Module:
    """Folds, in place, each norm that directly follows a convolution, in an `nn.Sequential` or a traced graph.

    The module must be in evaluation mode. What stands elsewhere is left as it is.
    """
    for owner in list(module.modules()):
        if isinstance(owner, fx.GraphModule):
            pairs = _neighbours(owner)
        elif isinstance(owner, nn.Sequential):
            pairs = itertools.pairwise(list(owner._modules))
        else:
            continue
        for name, following in pairs:
            convolution, norm = owner.get_submodule(name), owner.get_submodule(following)
            if isinstance(convolution, _CONVOLUTION) and (folded := _fold(convolution, norm)) is not None:
                owner.set_submodule(name, folded)
                owner.set_submodule(following, nn.Identity())
    return module


def _neighbours(traced: fx.GraphModule) -> Iterator[tuple[str, str]]:
    """The layers of a graph that follow one another with nothing else in between, each used once."""
    calls = Counter(node.target for node in traced.graph.nodes if node.op == "call_module")
    for node in traced.graph.nodes:
        if node.op != "call_module" or len(node.all_input_nodes) != 1:
            continue
        (source,) = node.all_input_nodes
        alone = source.op == "call_module" and len(source.users) == 1
        if alone and calls[source.target] == calls[node.target] == 1:
            yield str(source.target), str(node.target)


def _fold(convolution: nn.Conv1d | nn.Conv2d | nn.Conv3d, norm: nn.Module) -> nn.Module | None:
    """The convolution that does the norm's work too; None where that cannot be."""
    # The type itself: a subclass may do more than a batch norm, such as an activation.
    if isinstance(norm, _BATCH_NORM) and type(norm) in _BATCH_NORM and norm.track_running_stats:
        return fuse_conv_bn_eval(convolution, norm)
    if isinstance(norm, BatchRMSNorm):
        with torch.no_grad():
            factor = norm.scale(norm.running_mean_square)
            convolution.weight.mul_(factor.view(-1, *[1] * (convolution.weight.ndim - 1)))
            if convolution.bias is not None:
                convolution.bias.mul_(factor)
        return convolution
    return None
