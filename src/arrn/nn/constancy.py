"""The constancy check: does a block answer a zero input by a signal that is constant over space?

If b(0) is constant, the constant rejection after it removes it, and a residual whose difference is
zero can be skipped exactly. Zero padding after a bias, average pooling that counts its padding,
position embeddings and element-wise dropout break it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from arrn.errors import ArrnError, ConstancyError
from arrn.signal.grid import Grid, Size, as_grid

__all__ = ["block_grid", "check_zero_constant", "output_shape", "preserves_zero", "takes_context"]

# A violation is of the order of 1; rounding in float64, amplified by norms, stays far below this.
TOLERANCE = 1e-6


def preserves_zero(block: nn.Module) -> bool:
    """Whether the block declares b(0) = 0, so that it needs no constant rejection."""
    return bool(getattr(block, "preserves_zero", False))


def takes_context(block: nn.Module) -> bool:
    """Whether the block is called as ``block(diff, context)``, the context being the low band."""
    return bool(getattr(block, "takes_context", False))


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
    answer exactly zero. Of a block on the meta device, which holds no numbers, only the output shape is
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
    answer = torch.empty(0)
    for seed in range(2):
        for training in (True, False):
            generator = torch.Generator("cpu").manual_seed(seed)
            probe = copy.deepcopy(block).to("cpu", torch.float64).train(training)
            _randomise(probe, generator)
            answer = _probe(probe, features, grid, generator)
    return answer.shape[1], tuple(answer.shape[2:])


def output_shape(block: nn.Module, features: int, grid: Grid) -> tuple[int, Grid]:
    """The block's output channels and grid, found on a copy without numbers."""
    probe = copy.deepcopy(block).to("meta").eval()
    dtype = next((parameter.dtype for parameter in probe.parameters()), torch.get_default_dtype())
    zero = torch.zeros(2, features, *grid, device="meta", dtype=dtype)
    with torch.no_grad():
        answer = probe(zero, zero) if takes_context(block) else probe(zero)
    return answer.shape[1], tuple(answer.shape[2:])


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


def _probe(probe: nn.Module, features: int, grid: Grid, generator: torch.Generator) -> torch.Tensor:
    zero = torch.zeros(2, features, *grid, dtype=torch.float64, device="cpu")
    arguments = [zero]
    if takes_context(probe):
        arguments.append(torch.randn(zero.shape, dtype=torch.float64, device="cpu", generator=generator))
    trace = _Trace(dict(_names(probe)))
    handles = [module.register_forward_hook(trace.record, with_kwargs=True) for module in probe.modules()]
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            answer = probe(*arguments)
    finally:
        for handle in handles:
            handle.remove()
    if not isinstance(answer, torch.Tensor) or answer.ndim != zero.ndim:
        got = tuple(answer.shape) if isinstance(answer, torch.Tensor) else type(answer).__name__
        raise ArrnError(
            f"a block must return a signal of shape (batch, channels, *space) with {len(grid)} axes, got {got}"
        )
    if preserves_zero(probe):
        largest = float(answer.abs().max())
        if largest > 0:
            raise ConstancyError(
                f"the block declares preserves_zero but answers a zero input by up to {largest:.2g}; it must "
                "have no bias, no centring norm, and only activations that fix 0",
                trace.culprit or "",
                largest,
            )
    elif (deviation := _deviation(answer, channels_last=False)) > TOLERANCE:
        raise _error(probe, trace, deviation)
    return answer


def _names(module: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    return ((child, name) for name, child in module.named_modules())


def _deviation(signal: torch.Tensor, channels_last: bool) -> float:
    """How far a signal is from constant over space, relative to its largest value."""
    space = tuple(range(1, signal.ndim - 1)) if channels_last else tuple(range(2, signal.ndim))
    stray = (signal - signal.mean(dim=space, keepdim=True)).abs().max()
    return float(stray / signal.abs().max().clamp_min(1e-30))


def _strays(value: Any) -> float:
    """The deviation of any tensor in `value`, in whichever layout makes it smallest.

    Inside a block, tokens (batch, tokens, channels) and channels-last signals are as good as
    (batch, channels, *space); tensors without space have none to vary over.
    """
    if isinstance(value, torch.Tensor):
        if value.ndim < 3 or not value.is_floating_point() or value.numel() == 0:
            return 0.0
        return min(_deviation(value, channels_last=False), _deviation(value, channels_last=True))
    if isinstance(value, list | tuple):
        return max((_strays(item) for item in value), default=0.0)
    if isinstance(value, dict):
        return max((_strays(item) for item in value.values()), default=0.0)
    return 0.0


@dataclass
class _Trace:
    """Watches the probe run and remembers the first submodule that made a constant vary.

    Hooks fire when a module returns, so an inner module speaks before the one around it.
    """

    names: dict[nn.Module, str]
    culprit: str | None = field(default=None)
    deviation: float = 0.0

    def record(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if self.culprit is None and (strays := _strays(output)) > TOLERANCE >= _strays([args, kwargs]):
            self.culprit, self.deviation = self.names[module], strays


def _error(probe: nn.Module, trace: _Trace, deviation: float) -> ConstancyError:
    name = trace.culprit or ""
    culprit = probe.get_submodule(name)
    advice = "remove what depends on the position"
    if isinstance(culprit, nn.Conv1d | nn.Conv2d | nn.Conv3d) and culprit.padding_mode == "zeros":
        advice = "give it padding_mode='replicate', 'reflect' or 'circular'"
    elif isinstance(culprit, nn.AvgPool1d | nn.AvgPool2d | nn.AvgPool3d):
        advice = "give it count_include_pad=False"
    elif isinstance(culprit, nn.Dropout):
        advice = f"use nn.Dropout{probe_ndim(probe)}d, which drops whole channels"
    where = f"submodule {name!r} ({type(culprit).__name__})" if name else f"the block itself ({type(culprit).__name__})"
    size = trace.deviation or deviation
    mode = "training" if probe.training else "evaluation"
    return ConstancyError(
        f"the block's answer to a zero input must be constant over space, but {where} makes it vary by "
        f"{size:.2g} of its largest value in {mode} mode, so the residual could not be skipped exactly: "
        f"{advice}, or pass check=False to build it all the same",
        name,
        size,
    )


def probe_ndim(block: nn.Module) -> int:
    """The number of axes that the block's own layers work on."""
    return len(block_grid(block, 1))
