"""Folding norms into the convolutions before them, for inference."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias, TypeGuard, TypeVar

import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from arrn.nn.blocks import BatchRMSNorm, InvertedBlock
from arrn.nn.convolution import REPLICATE_CONVOLUTIONS
from arrn.nn.introspection import has_hooks

Module = TypeVar("Module", bound=nn.Module)

# The types themselves: a subclass may do more than its class, such as an activation, or standardise its weights.
_CONVOLUTION = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *REPLICATE_CONVOLUTIONS.values())
_BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_RUNS_ITS_LAYERS = (nn.Sequential.forward, InvertedBlock.forward)  # one after another, and nothing else

_Convolution: TypeAlias = nn.Conv1d | nn.Conv2d | nn.Conv3d


def fold_batch_norms(module: Module) -> Module:
    """Folds, in place, each norm that directly follows a convolution, in an `nn.Sequential` or a traced graph.

    The module must be in evaluation mode. What stands elsewhere is left as it is, and so is a convolution that does
    more than its class says: a subclass, hooks, a parametrized weight.
    """
    for owner in list(module.modules()):
        if isinstance(owner, fx.GraphModule):
            pairs = _neighbours(owner)
        elif isinstance(owner, nn.Sequential) and type(owner).forward in _RUNS_ITS_LAYERS:
            pairs = itertools.pairwise(list(owner._modules))
        else:
            continue
        for name, following in pairs:
            convolution, norm = owner.get_submodule(name), owner.get_submodule(following)
            if _is_plain(convolution) and not has_hooks(norm) and (folded := _fold(convolution, norm)) is not None:
                owner.set_submodule(name, folded)
                owner.set_submodule(following, nn.Identity())
    return module


def _is_plain(layer: nn.Module) -> TypeGuard[_Convolution]:
    return type(layer) in _CONVOLUTION and not has_hooks(layer)


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


def _fold(convolution: _Convolution, norm: nn.Module) -> nn.Module | None:
    """The convolution that does the norm's work too; None where that cannot be."""
    if isinstance(norm, _BATCH_NORM) and type(norm) in _BATCH_NORM and norm.track_running_stats:
        return fuse_conv_bn_eval(convolution, norm)
    if type(norm) is BatchRMSNorm:
        convolution = copy.deepcopy(convolution)  # it may stand elsewhere too
        with torch.no_grad():
            factor = norm.scale(norm.running_mean_square)
            convolution.weight.mul_(factor.view(-1, *[1] * (convolution.weight.ndim - 1)))
            if convolution.bias is not None:
                convolution.bias.mul_(factor)
        return convolution
    return None
