"""For inference: norms folded into the convolutions before them, and weights frozen for the compiler."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import TypeAlias, TypeGuard, TypeVar

import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from arrn.nn.blocks import BatchRMSNorm, InvertedBlock
from arrn.nn.introspection import has_hooks
from arrn.nn.layers import REPLICATE_CONVOLUTIONS, Borrowed

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
            if isinstance(convolution, Borrowed) and not has_hooks(convolution):
                convolution = convolution.owner  # folded, it is a convolution of its own
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


# How many forms of input are compiled; torch.compile alone would give up after 8, without a word to the caller.
_MOST_FORMS = 64


class Frozen(nn.Module):
    """A network through `torch.compile` with its weights as constants: for inference only, without gradients.

    On a CPU, this packs the weights of convolutions once, and fuses activations into the convolutions before them. The
    first call with inputs of a new shape compiles. Later changes of the weights have no effect.

    Args:
        network: the network, such as ``model.at_resolution(16).fuse()``; it is set to evaluation mode.

    Shape: as the network.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network.eval()
        self._compiled: Callable[[torch.Tensor], torch.Tensor] = torch.compile(network, dynamic=False)
        self._known: set[Hashable] = set()

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        form = _form(x)
        if form in self._known:
            return self._compiled(x)
        import torch._dynamo.config  # with the compiler, which takes a while
        import torch._inductor.config

        # Around the call, not an option of torch.compile: the tracer must know too that weights are constants.
        with (
            torch._inductor.config.patch(freezing=True),
            torch._dynamo.config.patch(recompile_limit=_MOST_FORMS),
        ):
            answer = self._compiled(x)
        self._known.add(form)
        return answer


def _form(x: torch.Tensor) -> Hashable:
    """All of an input, and of where it is called, that has the compiler begin anew."""
    kind = x.device.type
    cast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    modes = (cast, torch.is_autocast_cache_enabled(), torch.is_inference_mode_enabled())
    return x.shape, x.stride(), x.dtype, x.device, *modes
