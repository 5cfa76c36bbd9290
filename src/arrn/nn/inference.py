"""For inference: folded norms, frozen weights, and tied networks without what lies below open gates."""

from __future__ import annotations

import copy
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeAlias, TypeGuard, TypeVar

import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from arrn.gpu.switch import is_fast
from arrn.nn.blocks import BatchRMSNorm, InvertedBlock
from arrn.nn.introspection import has_hooks
from arrn.nn.junctions import VectorJunction
from arrn.nn.layers import REPLICATE_CONVOLUTIONS, Borrowed

Module = TypeVar("Module", bound=nn.Module)

# The types themselves: a subclass may do more than its class, such as an activation, or standardise its weights.
_CONVOLUTION = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *REPLICATE_CONVOLUTIONS.values())
_BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_RUNS_ITS_LAYERS = (nn.Sequential.forward, InvertedBlock.forward)  # one after another, and nothing else

_Convolution: TypeAlias = nn.Conv1d | nn.Conv2d | nn.Conv3d
_Program: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


def fold_batch_norms(module: Module, *, keep_shared: bool = False) -> Module:
    """Folds, in place, each norm that directly follows a convolution, in an `nn.Sequential` or a traced graph.

    The module must be in evaluation mode. What stands elsewhere is left as it is, and so is a convolution that does
    more than its class says: a subclass, hooks, a parametrized weight.

    Args:
        module: of which `Borrowed` convolutions, too, become convolutions of their own.
        keep_shared: convolutions that stand at several places (`Borrowed`) stay one convolution with the same weights;
            a norm that follows one becomes a `ChannelScale`.
    """
    borrowed = [part for part in module.modules() if keep_shared and isinstance(part, Borrowed)]
    shared = {id(part.owner) for part in borrowed}
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
            if id(convolution) in shared:
                owner.set_submodule(name, convolution)
                if _is_plain(convolution) and _is_batch_norm(norm) and not has_hooks(norm):
                    owner.set_submodule(following, ChannelScale.of(norm, convolution.weight.ndim - 2))
                continue
            if _is_plain(convolution) and not has_hooks(norm) and (folded := _fold(convolution, norm)) is not None:
                owner.set_submodule(name, folded)
                owner.set_submodule(following, nn.Identity())
    return module


def _is_plain(layer: nn.Module) -> TypeGuard[_Convolution]:
    return type(layer) in _CONVOLUTION and not has_hooks(layer)


def _is_batch_norm(layer: nn.Module) -> TypeGuard[nn.BatchNorm2d]:
    return isinstance(layer, _BATCH_NORM) and type(layer) in _BATCH_NORM and layer.track_running_stats


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
    if _is_batch_norm(norm):
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


class ChannelScale(nn.Module):
    """A norm in evaluation mode: each channel is multiplied by a number, and shifted by another.

    Args:
        scale, shift: shape (channels,).
        ndim: axes of space.

    Shape: (batch, channels, *space), unchanged.

    >>> ChannelScale(torch.tensor([2.0]), torch.tensor([1.0]), ndim=1)(torch.tensor([[[3.0, 4.0]]]))
    tensor([[[7., 9.]]])
    """

    scale: torch.Tensor
    shift: torch.Tensor

    def __init__(self, scale: torch.Tensor, shift: torch.Tensor, ndim: int) -> None:
        super().__init__()
        for name, values in (("scale", scale), ("shift", shift)):
            self.register_buffer(name, values.detach().view(-1, *[1] * ndim))

    @classmethod
    def of(cls, norm: nn.BatchNorm2d, ndim: int) -> ChannelScale:
        """What a batch norm does with its running mean and variance."""
        mean, variance = norm.running_mean, norm.running_var
        assert mean is not None
        assert variance is not None
        weight = torch.ones_like(mean) if norm.weight is None else norm.weight
        bias = torch.zeros_like(mean) if norm.bias is None else norm.bias
        scale = weight * torch.rsqrt(variance + norm.eps)
        return cls(scale, bias - mean * scale, ndim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + self.shift


class Shortcut(nn.Module):
    """A tied network as two programs: without what lies below open gates, and whole where some gate is not fully open.

    On a CPU such a network (`VectorJunction`) leaves out what a sample does not need by itself. A recording or a
    compiled program does the same work for all signals, so two of them are needed. The first one also tells whether
    its answers hold, which the host reads. If they hold for all samples of a batch, the second one does not run.

    Other networks are one program, as without this class.

    Args:
        whole: runs the network.
        above: runs what `above_open_gates` makes of it; None: `whole` runs always.

    Shape: the network's.

    >>> import arrn
    >>> level = arrn.create_model("arrn_mini", width=4, repeats=(1, 1)).eval().at_resolution(32)
    >>> fast = Shortcut.of(level.fuse(), Frozen)
    """

    def __init__(self, whole: _Program, above: _Program | None) -> None:
        super().__init__()
        self._whole, self._above = whole, above

    @classmethod
    def of(cls, network: nn.Module, prepare: Callable[[nn.Module], _Program]) -> Shortcut:
        """Both programs of a network.

        Args:
            network: cast to one resolution (`ARRN.at_resolution`), in evaluation mode. Weights are shared.
            prepare: makes a fast function of a program, such as `Frozen`, or
                ``lambda program: Replay(torch.no_grad()(program), device)``; called once or twice.
        """
        above = above_open_gates(network)
        return cls(prepare(network), None if above is None else prepare(above))

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self._above is not None:
            found = self._above(x)
            if len(x) == 0 or float(found[:, -1].amin()) == 1:
                return found[:, :-1]
        return self._whole(x)


class AboveOpenGates(nn.Module):
    """What a tied network does for signals that open every gate; `above_open_gates` makes it.

    The network of the top level gives the features. The gates of all levels read the signal alone, so on a GPU they
    are found on a stream beside the features.

    Shape: (batch, in_channels, *size) -> (batch, num_classes + 1), the product of the gates last.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        network: Any = self.network
        r = network.enter(x)
        with _beside(r):
            opened = self._opened(r)
        features = network.residuals[0].block.find(r).to(r.dtype)
        logits = network.head(features.view(*features.shape, *[1] * (r.ndim - 2)))
        _wait_for_what_is_beside(r)
        return torch.cat([logits, opened.flatten(1).to(logits.dtype)], dim=1)

    def _opened(self, r: torch.Tensor) -> torch.Tensor:
        """The product of the gates, shape (batch, 1, ..., 1); the signal goes down the ladder unchanged."""
        levels: Any = self.network.residuals
        signal = r[:, : levels[0].block.channels]
        opened: torch.Tensor | float = 1.0
        for level in levels:
            low = level.down(signal)
            opened = opened * level.openness_of(signal, low)
            signal = low
        assert isinstance(opened, torch.Tensor)
        return opened


@lru_cache
def _stream_of(device: torch.device, thread: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _stream_beside(device: torch.device) -> torch.cuda.Stream:
    """One for each thread: a thread that records a graph must not meet the work of another."""
    return _stream_of(device, threading.get_ident())


def _has_streams(x: torch.Tensor) -> bool:
    return x.is_cuda and is_fast() and not torch.compiler.is_compiling()


@contextmanager
def _beside(x: torch.Tensor) -> Iterator[None]:
    """What is issued inside runs beside what is issued afterwards, on a GPU; `x` is ready for it."""
    if not _has_streams(x):
        yield
        return
    stream = _stream_beside(x.device)
    stream.wait_stream(torch.cuda.current_stream(x.device))
    with torch.cuda.stream(stream):
        yield


def _wait_for_what_is_beside(x: torch.Tensor) -> None:
    if _has_streams(x):
        torch.cuda.current_stream(x.device).wait_stream(_stream_beside(x.device))


def above_open_gates(network: nn.Module) -> AboveOpenGates | None:
    """A tied network without what lies below open gates; None where nothing would be left out. Weights are shared.

    Args:
        network: cast to one resolution; a network that takes any resolution has no such part.
    """
    levels: list[Any] = list(getattr(network, "residuals", ()))
    if not levels or not hasattr(network, "enter") or not isinstance(getattr(network, "base", None), VectorJunction):
        return None
    if not all(isinstance(level.block, VectorJunction) and _hands_on_the_signal(level) for level in levels):
        return None
    return AboveOpenGates(network)


def _hands_on_the_signal(level: Any) -> bool:
    """Whether the projection behind a level gives the channels of the signal as they are, as `carrying` makes it."""
    weight: torch.Tensor = level.projection.weight
    kept = level.block.channels
    return not weight.requires_grad and torch.equal(weight[:kept], torch.eye(kept, weight.shape[1]).to(weight))


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
