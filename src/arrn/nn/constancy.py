"""What blocks must be like so that their levels can be skipped exactly, found out by probing them.

The paper's form: does a block answer a zero input by a signal that is constant over space? If b(0) is constant, the
constant rejection after it removes it, and a residual whose difference is zero can be skipped exactly. Zero padding
after a bias, average pooling that counts its padding, position embeddings and element-wise dropout break it.

What hands a contribution down, in either form: does it keep zero zero? What the difference form asks of blocks stands
beside it (`arrn.nn.difference`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from arrn.errors import ArrnError, ConstancyError
from arrn.signal.grid import Grid, Size, as_grid, format_grid, grid_of

# A violation is of the order of 1; rounding in float64, amplified by norms, stays far below this.
TOLERANCE = 1e-6


def preserves_zero(block: nn.Module) -> bool:
    """Whether the block declares b(0) = 0, so that it needs no constant rejection."""
    return bool(getattr(block, "preserves_zero", False))


def takes_context(block: nn.Module) -> bool:
    """Whether the block is called as ``block(diff, context)``, the context being the low band."""
    return bool(getattr(block, "takes_context", False))


def gives_map(block: nn.Module) -> bool:
    """Whether the block appends the last features on the grid of its input to a list that follows its input.

    Such a block ends on another grid, so that they do not show in its answer. It has ``without_features(r)`` for what
    there is on that grid where it does not run.
    """
    return bool(getattr(block, "gives_map", False))


def looks_at_gates(block: nn.Module) -> bool:
    """Whether a block of the gated form, or a base below, leaves out what samples that came through a gate do not need.

    Such a module takes `opened`, how many samples of a training batch, counted from the first, came through one.
    """
    return bool(getattr(block, "looks_at_gates", False))


def block_grid(block: nn.Module, size: Size) -> Grid:
    """`size` as a grid; where it is one number, the block's own layers tell how many axes there are."""
    if isinstance(size, Sequence):
        return as_grid(size, len(size))
    layers = {
        1: (nn.Conv1d, nn.BatchNorm1d, nn.AvgPool1d, nn.MaxPool1d),
        2: (nn.Conv2d, nn.BatchNorm2d, nn.AvgPool2d, nn.MaxPool2d),
        3: (nn.Conv3d, nn.BatchNorm3d, nn.AvgPool3d, nn.MaxPool3d),
    }
    for module in block.modules():
        for ndim, kinds in layers.items():
            if isinstance(module, kinds):
                return as_grid(size, ndim)
    return as_grid(size, 2)


def check_zero_constant(block: nn.Module, features: int, size: Size) -> tuple[int, Grid]:
    """Refuses a block whose answer to a zero input varies over space, naming the submodule at fault.

    A fresh batch norm hides violations, so a deep copy is probed, in float64, in training and in
    evaluation mode, with its biases, affine parameters and running statistics drawn at random; the
    block itself and the random state are left alone. A block that declares ``preserves_zero`` must
    answer exactly zero. For a block on the meta device, which holds no numbers, only the output shape is
    found.

    Args:
        block: the block, called as ``block(x)`` or, with ``takes_context``, ``block(x, context)``.
        features: its input channels.
        size: its grid, a number or one number per axis.

    Returns:
        The block's output channels and output grid.

    Raises:
        ConstancyError: with the name of the submodule and the size of the deviation.

    >>> check_zero_constant(nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), 4, 8)
    (6, (8, 8))
    """
    grid = block_grid(block, size)
    if any(parameter.is_meta for parameter in block.parameters()):
        return output_shape(block, features, grid)
    shape = torch.Size()
    for seed in range(2):
        for training in (True, False):
            shape = _probe(*probe_of(block, features, grid, seed, training))
    return shape[1], tuple(shape[2:])


def check_hand_down(way: nn.Module, features: int, size: Grid, next_size: Grid, *, probe: bool = True) -> int:
    """Refuses a module that cannot take a block's contribution to the next grid; returns the channels that it gives.

    The module must return a signal on `next_size`, return zero for zero in training and evaluation mode, and return a
    small signal for a millionth of a signal. A contribution that should be zero is rounding noise in practice, and a
    norm of single samples would make the noise as large as a signal.

    Args:
        way: the module, called on (batch, features, *size).
        features: the channels of its input.
        size: the grid of its input.
        next_size: the grid of its output.
        probe: whether to check the values of its outputs, or only their shape.

    >>> check_hand_down(nn.Conv2d(4, 6, 2, stride=2, bias=False), 4, (8, 8), (4, 4))
    6
    """
    name = f"hand_down ({type(way).__name__})"
    channels, grid = output_shape(way, features, size)
    if grid != next_size:
        raise ArrnError(
            f"{name} takes {format_grid(size)} to {format_grid(grid)}, but the next grid is {format_grid(next_size)}"
        )
    if not probe or any(parameter.is_meta for parameter in way.parameters()):
        return channels
    for training in (True, False):
        copied, x, _ = probe_of(way, features, size, 0, training)
        largest = _largest(_run(copied, x, x)[:1])
        if largest > 0:
            mode = "training" if training else "evaluation"
            raise ArrnError(
                f"{name} returns values of up to {largest:.2g} for an all-zero input in {mode} mode, so the residual "
                "could not be skipped exactly: it must have no bias and no centring norm"
            )
    whole, little = (_largest(_run(copied, x * factor, x)) for factor in (1, 1e-6))
    if little > 1e-3 * whole:
        raise ArrnError(
            f"{name} returns {little / whole:.2g} times as much for a signal that is scaled by a millionth, so "
            "rounding noise would count as details: it must not divide by the size of its input"
        )
    return channels


def probe_of(
    block: nn.Module, features: int, grid: Grid, seed: int, training: bool
) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A copy of the block that hides nothing, in float64, its input, and a context of the same shape.

    The input's first sample is zero. Beside it stands a random one: were the whole batch constant, each
    batch norm in training mode would divide rounding errors by a deviation of zero, layer after layer.
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    probe = copy.deepcopy(block).to("cpu", torch.float64).train(training)
    _randomise(probe, generator)
    x, context = torch.randn(2, 2, features, *grid, dtype=torch.float64, device="cpu", generator=generator)
    x[0] = 0
    return probe, x, context


def output_shape(block: nn.Module, features: int, grid: Grid) -> tuple[int, Grid]:
    """The block's output channels and grid, found on a copy without numbers."""
    probe = copy.deepcopy(block).to("meta").eval()
    dtype = next((parameter.dtype for parameter in probe.parameters()), torch.get_default_dtype())
    zero = torch.zeros(2, features, *grid, device="meta", dtype=dtype)
    answer = _run(probe, zero, zero)
    return answer.shape[1], grid_of(answer)


def _run(probe: nn.Module, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
    """Calls the block, and makes sure that what comes out is a signal."""
    arguments = (x, context) if takes_context(probe) else (x,)
    return run_probe(lambda: probe(*arguments), x)


def run_probe(call: Callable[[], torch.Tensor], x: torch.Tensor, seed: int | None = None) -> torch.Tensor:
    """The answer of a block that is called with `x`, which must be a signal; `seed` is of what it draws."""
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), made_like(x):
            if seed is not None:
                torch.manual_seed(seed)
            answer = call()
    except (RuntimeError, ValueError, TypeError) as error:
        raise ArrnError(f"the block fails on an input of shape {tuple(x.shape)}: {error}") from error
    if not isinstance(answer, torch.Tensor) or answer.ndim != x.ndim:
        got = tuple(answer.shape) if isinstance(answer, torch.Tensor) else type(answer).__name__
        raise ArrnError(
            f"a block must return a signal of shape (batch, channels, *space) with {x.ndim - 2} axes, got {got}"
        )
    return answer


@contextmanager
def made_like(x: torch.Tensor) -> Iterator[None]:
    """Where tensors that a block makes for itself, by `torch.zeros` and the like, have the device and dtype of `x`."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(x.dtype)
    try:
        with x.device:
            yield
    finally:
        torch.set_default_dtype(usual)


def _randomise(module: nn.Module, generator: torch.Generator) -> None:
    """Draws what may hide a violation: biases, scales, running statistics, all that is still uniform."""
    with torch.no_grad():
        for owner in module.modules():
            for name, value in [*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False)]:
                if not value.is_floating_point():
                    continue
                if value.ndim == 1 and not name.endswith(("bias", "mean")):  # scales, variances
                    value.uniform_(0.5, 1.5, generator=generator)
                elif value.ndim <= 1 or bool((value == value.flatten()[0]).all()):
                    value.normal_(generator=generator)


def _probe(probe: nn.Module, x: torch.Tensor, context: torch.Tensor) -> torch.Size:
    claims_zero = preserves_zero(probe)
    trace = _Trace(probe, lambda tensor: _largest(zero_sample(tensor)) if claims_zero else variation(tensor))
    with trace:
        answer = _run(probe, x, context)
    if claims_zero and _largest(answer[:1]) > 0:
        raise _zero_error(trace, _largest(answer[:1]))
    deviation = 0.0 if claims_zero else _varies_over(answer, range(2, answer.ndim))
    if deviation > TOLERANCE:
        raise _constancy_error(trace, deviation, probe.training, x.ndim - 2)
    return answer.shape


def zero_sample(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor inside the block that belongs to the first of the two samples."""
    return tensor[: max(1, tensor.shape[0] // 2)] if tensor.ndim else tensor


def _largest(tensor: torch.Tensor) -> float:
    return as_size(tensor.abs().max())


def _varies_over(tensor: torch.Tensor, space: Iterable[int]) -> float:
    """How far the zero sample is from constant over the axes `space`, relative to the largest value of both samples.

    Its own largest value is no measure: an instance norm answers a constant by rounding noise and nothing else.
    """
    zero = zero_sample(tensor)
    stray = (zero - zero.mean(dim=tuple(space), keepdim=True)).abs().max()
    largest = torch.maximum(tensor.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs().max(), zero.abs().max())
    return as_size(stray / largest.clamp_min(1e-30))


def as_size(value: torch.Tensor) -> float:
    """A number that compares: what is not a number is as far from right as can be."""
    return float(value.nan_to_num(nan=math.inf, posinf=math.inf))


def variation(tensor: torch.Tensor) -> float:
    """How far a tensor inside the block is from constant for the zero sample, in the layout that makes it smallest.

    Tokens (batch, tokens, channels) and channels-last signals are as good as (batch, channels,
    *space); tensors without space have none to vary over.
    """
    if tensor.ndim < 3:
        return 0.0
    return min(_varies_over(tensor, range(2, tensor.ndim)), _varies_over(tensor, range(1, tensor.ndim - 1)))


class _Trace:
    """Watches a block run, and remembers the first submodule that turned a good input into a bad output.

    Hooks fire when a module returns, so an inner module speaks before the one around it.
    """

    def __init__(self, block: nn.Module, measure: Callable[[torch.Tensor], float]) -> None:
        self.block, self.measure = block, measure
        self.name, self.culprit, self.size = "", block, 0.0

    def __enter__(self) -> None:
        self._handles = [
            module.register_forward_hook(partial(self._record, name), with_kwargs=True)
            for name, module in self.block.named_modules()
        ]

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _record(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if self.size == 0.0 and self._worst([args, kwargs]) <= TOLERANCE < self._worst(output):
            self.name, self.culprit, self.size = name, module, self._worst(output)

    def _worst(self, value: Any) -> float:
        if isinstance(value, torch.Tensor):
            return self.measure(value) if value.is_floating_point() and value.numel() else 0.0
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        return max((self._worst(item) for item in items), default=0.0)

    @property
    def where(self) -> str:
        """The culprit in words."""
        return in_words(self.name, self.culprit)


def in_words(name: str, module: nn.Module) -> str:
    """A submodule in words."""
    kind = type(module).__name__
    return f"submodule {name!r} ({kind})" if name else f"the block itself ({kind})"


def _zero_error(trace: _Trace, size: float) -> ConstancyError:
    return ConstancyError(
        f"the block declares preserves_zero but returns values of up to {size:.2g} for an all-zero input, because of "
        f"{trace.where}: it must have no bias, no centring norm, and only activations that fix 0",
        trace.name,
        size,
    )


def _constancy_error(trace: _Trace, deviation: float, training: bool, ndim: int) -> ConstancyError:
    if math.isinf(deviation):
        return ConstancyError(
            f"the block returns NaN or infinity for an all-zero input, because of {trace.where}: add a small number to "
            "what it divides by, or pass check=False to build it all the same",
            trace.name,
            deviation,
        )
    culprit = trace.culprit
    advice = "remove what depends on the position"
    if isinstance(culprit, nn.Conv1d | nn.Conv2d | nn.Conv3d) and culprit.padding_mode == "zeros":
        advice = "give it padding_mode='replicate', 'reflect' or 'circular'"
    elif isinstance(culprit, nn.AvgPool1d | nn.AvgPool2d | nn.AvgPool3d):
        advice = "give it count_include_pad=False"
    elif isinstance(culprit, nn.Dropout):
        advice = f"use nn.Dropout{ndim}d, which drops whole channels"
    size = trace.size or deviation
    return ConstancyError(
        f"the block's output for an all-zero input must be constant over space, but {trace.where} makes it vary by "
        f"{size:.2g} of its largest value in {'training' if training else 'evaluation'} mode, so the residual could "
        f"not be skipped exactly: {advice}, or pass check=False to build it all the same",
        trace.name,
        size,
    )
