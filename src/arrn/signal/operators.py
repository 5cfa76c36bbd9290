"""Signals whose channels are innermost in memory, as matrix products and GPUs like them; any number of axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import torch
import torch.nn.functional as F

from arrn.signal.grid import Grid
from arrn.signal.kernels import Kernel


def is_channels_last(x: torch.Tensor) -> bool:
    """Whether `x`, shaped (batch, channels, *space), is stored with its channels innermost."""
    return not x.is_contiguous() and x.movedim(1, -1).is_contiguous()


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """(batch, channels, *space) as a contiguous (batch, *space, channels); no copy if it is stored so."""
    return x.movedim(1, -1).contiguous()


def channels_first(x: torch.Tensor) -> torch.Tensor:
    """(batch, *space, channels) seen as (batch, channels, *space), in channels-last memory."""
    return x.movedim(-1, 1)


AxisOperator: TypeAlias = tuple[int, torch.Tensor]
"""An axis of space (0 is the first) and the (target, source) matrix that acts along it."""

FEW_CHANNELS = 16
"""Below this many channels, one matrix product for all samples pays, though channels must be turned around for it."""


def axis_order(source: Grid, target: Grid) -> list[int]:
    """The axes of space in the order of least work: shrinking ones first, growing ones last."""
    return sorted(range(len(source)), key=lambda axis: target[axis] / source[axis])


def axes_to_resample(kernel: Kernel, source: Grid, target: Grid) -> list[int]:
    """The axes along which going from `source` to `target` changes anything, in the order of least work."""
    return [n for n in axis_order(source, target) if source[n] != target[n] or not kernel.keeps(source[n])]


def apply_axes(x: torch.Tensor, operators: Sequence[AxisOperator]) -> torch.Tensor:
    """Applies each matrix along its axis of space; the memory format of `x` is kept.

    Args:
        x: a signal of shape (batch, channels, *space).
        operators: pairs of an axis of space and a (target, source) matrix of x's dtype and device.
    """
    if not operators:
        return x
    if is_channels_last(x):
        y = channels_last(x)
        for axis, matrix in operators:
            y = _apply_along(y, matrix, 1 + axis)
        return channels_first(y)
    for axis, matrix in operators:
        x = _apply_along(x, matrix, 2 + axis)
    return x


def _apply_along(x: torch.Tensor, matrix: torch.Tensor, axis: int) -> torch.Tensor:
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    if inner == 1:
        y = F.linear(x.reshape(outer, x.shape[axis]), matrix)
    else:
        # A batched product over the outer axes needs no transposed copy; torch.matmul makes one when
        # gradients are wanted.
        y = torch.bmm(matrix.expand(outer, -1, -1), x.reshape(outer, x.shape[axis], inner))
    return y.view(*x.shape[:axis], matrix.shape[0], *x.shape[axis + 1 :])


def apply_composed(
    x: torch.Tensor, matrix: torch.Tensor, target: Grid, minuend: torch.Tensor | None = None
) -> torch.Tensor:
    """Applies one matrix to all axes of space at once: more multiplications than axis by axis, fewer passes.

    Args:
        x: a signal of shape (batch, channels, *space).
        matrix: shape (samples of the target grid, samples of x's), of x's dtype and device.
        target: the grid of the answer.
        minuend: a signal on the target grid, from which the answer is subtracted in the same pass.
    """
    batch, channels = x.shape[:2]
    after, before = matrix.shape
    innermost = is_channels_last(x)
    if innermost and channels >= FEW_CHANNELS:
        operator, flat = matrix.expand(batch, -1, -1), channels_last(x).view(batch, before, channels)
        if minuend is None:
            y = torch.bmm(operator, flat)
        else:
            y = torch.baddbmm(channels_last(minuend).view(batch, after, channels), operator, flat, alpha=-1)
        return channels_first(y.view(batch, *target, channels))
    rows = x.reshape(batch * channels, before)
    if minuend is None:
        y = F.linear(rows, matrix)
    else:
        y = torch.addmm(minuend.reshape(batch * channels, after), rows, matrix.t(), alpha=-1)
    y = y.view(batch, channels, *target)
    return channels_first(channels_last(y)) if innermost else y
