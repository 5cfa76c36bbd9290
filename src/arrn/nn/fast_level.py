"""A level of an ARRN on a GPU: the resamplings around its block as one matrix product each.

The smoothing after the block and the rejection of the constant are one matrix, D - 1/N. Sums and differences are taken
inside the products. Signals keep their channels innermost in both directions, where slices of a batch and means
would have autograd turn them around.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from arrn.signal.memory_order import channels_first, channels_last

if TYPE_CHECKING:
    from arrn.nn.residual import LaplacianResidual

__all__ = ["can_fuse_level", "fused_level"]


def can_fuse_level(residual: LaplacianResidual, survivors: int | None) -> bool:
    """Whether `fused_level` computes what the level would."""
    return (
        survivors != 0
        and residual.down.is_composed
        and residual.up.is_composed
        and not residual.strided
        and not residual.takes_context
        and not torch.compiler.is_compiling()
    )


def fused_level(residual: LaplacianResidual, r: torch.Tensor, survivors: int | None) -> torch.Tensor:
    """What the level makes of `r`, shape (batch, in_features, *size); its block sees the first `survivors`."""
    down, up = residual.down.composed_for(r), residual.up.composed_for(r)
    smooth = residual.down.composed_for(r, rejecting=residual.rejects_mean)
    count = r.shape[0] if survivors is None else min(survivors, r.shape[0])
    low, diff = _Split.apply(channels_last(r).flatten(1, -2).to(down.dtype), down, up, count)
    y = channels_last(residual.run_block(channels_first(diff.unflatten(1, residual.size)))).flatten(1, -2)
    y = y.to(smooth.dtype)  # under autocast a block may end in float32
    weight = residual.projection.weight
    if residual.widening:
        answer = _Join.apply(F.linear(low, weight), y, smooth, count)
    else:
        answer = F.linear(_Join.apply(low, y, smooth, count), weight)
    return channels_first(answer.unflatten(1, residual.next_size))


def _each(matrix: torch.Tensor, batch: int) -> torch.Tensor:
    return matrix.expand(batch, -1, -1)


def _copy(x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """A copy by a kernel: in a CUDA graph its neighbours wait some 5 us for one that the driver makes."""
    return torch.add(x, 0, out=out)


def _changing_first(whole: torch.Tensor, matrix: torch.Tensor, first: torch.Tensor, sign: int) -> torch.Tensor:
    """`whole`, with the matrix times `first` added to, or taken from, its first samples."""
    answer, count = _copy(whole), first.shape[0]
    answer[:count].baddbmm_(_each(matrix, count), first, alpha=sign)
    return answer


class _Split(torch.autograd.Function):
    """low = D r, and diff = r - U low for the first `count` samples; tensors of shape (batch, samples, channels)."""

    @staticmethod
    def forward(
        ctx: Any, r: torch.Tensor, down: torch.Tensor, up: torch.Tensor, count: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(down, up)
        low = torch.bmm(_each(down, r.shape[0]), r)
        return low, _copy(r[:count]).baddbmm_(_each(up, count), low[:count], alpha=-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_low: torch.Tensor, by_diff: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        down, up = ctx.saved_tensors
        by_diff = by_diff.contiguous()
        count, batch = by_diff.shape[0], by_low.shape[0]
        by_low = _changing_first(by_low.contiguous(), up.t(), by_diff, -1)
        by_r = by_low.new_empty(batch, down.shape[1], by_low.shape[2])
        back = down.t()
        _copy(by_diff, out=by_r[:count]).baddbmm_(_each(back, count), by_low[:count])
        torch.bmm(_each(back, batch - count), by_low[count:], out=by_r[count:])
        return by_r, None, None, None


class _Join(torch.autograd.Function):
    """`low`, with the matrix times y added to its first `count` samples."""

    @staticmethod
    def forward(ctx: Any, low: torch.Tensor, y: torch.Tensor, smooth: torch.Tensor, count: int) -> torch.Tensor:
        ctx.save_for_backward(smooth)
        ctx.count = count
        return _changing_first(low.contiguous(), smooth, y, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (smooth,) = ctx.saved_tensors
        gradient = gradient.contiguous()
        by_y = torch.bmm(_each(smooth.t(), ctx.count), gradient[: ctx.count])
        return gradient, by_y, None, None
