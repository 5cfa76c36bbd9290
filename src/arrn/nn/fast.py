"""The fast paths of blocks and of whole levels: PyTorch's operators, replaced by fused ones where those apply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable

from arrn.gpu import kernels_serve, silu_depthwise_silu
from arrn.gpu.fused import pointwise_rows
from arrn.nn.difference import answer_both, subtract_halves
from arrn.nn.introspection import has_hooks
from arrn.nn.layers import ReplicateConv2d, Resampling
from arrn.signal.operators import channels_first, channels_last

if TYPE_CHECKING:
    from arrn.nn.blocks import InvertedBlock
    from arrn.nn.residual import LaplacianResidual


class _Stage(NamedTuple):
    """A pointwise convolution, a norm, SiLU, a depthwise convolution, a norm, SiLU, perhaps dropout of channels."""

    pointwise: nn.Module | None
    norm: nn.Module | None
    activation: nn.Module | None
    depthwise: nn.Module | None
    depthwise_norm: nn.Module | None
    depthwise_activation: nn.Module | None
    dropout: nn.Module | None


def _stages(block: InvertedBlock) -> Iterator[_Stage]:
    """The layers by their names; what is not there, since users may change a network, is None."""
    layers = block._modules
    pointwise, n = "expand", 1
    while (depthwise := f"depthwise{n}") in layers:
        names = [name + part for name in (pointwise, depthwise) for part in ("", "_norm", "_act")]
        yield _Stage(*(layers.get(name) for name in (*names, f"{depthwise}_dropout")))
        pointwise, n = f"pointwise{n}", n + 1


def can_fuse(block: InvertedBlock, x: torch.Tensor) -> bool:
    """Whether the fused path computes what the layers of `block`, as they are now, would."""
    if x.ndim != 4 or not kernels_serve(x):
        return False
    if torch.compiler.is_compiling() and not _is_folded(block):
        return False  # what training fuses is no operator that a compiler could follow
    if not (block.training or not torch.is_grad_enabled()):
        return False  # gradients through running statistics: rare, left to the layers
    if x.shape[0] * x.shape[2] * x.shape[3] <= block.training:
        return False  # an empty batch, and in training a single value, of which the layers have something to say
    return _is_as_built(block) and not any(has_hooks(layer) for layer in block.children())


def _is_folded(block: InvertedBlock) -> bool:
    """Whether no norm is left in `block`, and so nothing but SiLU around its depthwise convolutions."""
    return not block.training and not any(isinstance(layer, nn.BatchNorm2d) for layer in block.children())


def _is_as_built(block: InvertedBlock) -> bool:
    """Whether the layers are those that `InvertedBlock` puts there, in their places, and no others."""
    stages = list(_stages(block))
    found = 1 + sum(layer is not None for stage in stages for layer in stage)
    return (
        found == len(block)
        and _is_pointwise(block._modules.get("contract"))
        and all(_is_stage(stage, block.training) for stage in stages)
    )


def _is_stage(stage: _Stage, training: bool) -> bool:
    return (
        _is_pointwise(stage.pointwise)
        and _is_norm(stage.norm, training)
        and type(stage.activation) is nn.SiLU
        and type(stage.depthwise) is ReplicateConv2d
        and stage.depthwise.fits_kernel
        and _is_norm(stage.depthwise_norm, training)
        and type(stage.depthwise_activation) is nn.SiLU
        and _is_dropout(stage.dropout, training)
    )


def _is_pointwise(layer: nn.Module | None) -> bool:
    if type(layer) is not nn.Conv2d:
        return False
    return layer.kernel_size == (1, 1) and layer.stride == (1, 1) and layer.groups == 1


def _is_norm(layer: nn.Module | None, training: bool) -> bool:
    if type(layer) is nn.BatchNorm2d:
        return layer.training == training and layer.affine and layer.track_running_stats and layer.momentum is not None
    return type(layer) is nn.Identity and not training  # what a norm that was folded away leaves


def _is_dropout(layer: nn.Module | None, training: bool) -> bool:
    return layer is None or (type(layer) is nn.Dropout2d and layer.training == training and layer.p < 1)


def fused_forward(block: InvertedBlock, x: torch.Tensor) -> torch.Tensor:
    """What ``block(x)`` is, for a block and an input that `can_fuse`; shape (batch, features, height, width)."""
    rows = channels_last(x)
    run = _train_stage if block.training else _infer_stage
    for stage in _stages(block):
        rows = run(stage, rows)
    return channels_first(_pointwise(block.get_submodule("contract"), rows))


def _pointwise(convolution: nn.Module | None, rows: torch.Tensor) -> torch.Tensor:
    assert isinstance(convolution, nn.Conv2d)
    weight = convolution.weight.flatten(1)
    if torch.is_grad_enabled() and convolution.bias is None:
        return pointwise_rows(rows, weight)
    return F.linear(rows, weight, convolution.bias)


def _train_stage(stage: _Stage, rows: torch.Tensor) -> torch.Tensor:
    from arrn.gpu.fused import norm_silu_depthwise, norm_silu_rows
    from arrn.gpu.norm_launch import measure_moments

    norm, depthwise, after = stage.norm, stage.depthwise, stage.depthwise_norm
    assert isinstance(norm, nn.BatchNorm2d)
    assert isinstance(depthwise, nn.Conv2d)
    assert isinstance(after, nn.BatchNorm2d)
    y = _pointwise(stage.pointwise, rows)
    normal = _next_normal(norm, measure_moments(y.detach()))
    pivot = after.get_buffer("running_mean")
    z, partial = norm_silu_depthwise(y, norm.weight, norm.bias, normal, depthwise.weight, pivot)
    return norm_silu_rows(z, after.weight, after.bias, _next_normal(after, partial), drawn_mask(stage.dropout, z))


def drawn_mask(dropout: nn.Module | None, z: torch.Tensor) -> torch.Tensor | None:
    """What the layer multiplies channels by, drawn as it draws them; shape (batch, channels)."""
    if not isinstance(dropout, nn.Dropout2d):
        return None
    kept = 1 - dropout.p
    return z.new_empty(z.shape[0], z.shape[-1]).bernoulli_(kept).div_(kept)


def _next_normal(norm: nn.BatchNorm2d, partial: torch.Tensor) -> torch.Tensor:
    """The batch's own statistics, taken into the running ones."""
    from arrn.gpu.norm_launch import finish_moments

    mean, var = norm.get_buffer("running_mean"), norm.get_buffer("running_var")
    assert norm.momentum is not None
    batches = norm.get_buffer("num_batches_tracked")
    with torch.no_grad():
        return finish_moments(partial, norm.weight, norm.bias, mean, var, batches, norm.momentum, norm.eps)


def _infer_stage(stage: _Stage, rows: torch.Tensor) -> torch.Tensor:
    depthwise = stage.depthwise
    assert isinstance(depthwise, nn.Conv2d)
    if torch.compiler.is_compiling():
        y = channels_first(_pointwise(stage.pointwise, rows))
        return channels_last(silu_depthwise_silu(y, depthwise.weight, depthwise.bias))
    from arrn.gpu.depthwise_launch import depthwise_forward
    from arrn.gpu.norm_launch import norm_silu

    before, after = _running_normal(stage.norm), _running_normal(stage.depthwise_norm)
    y, _ = depthwise_forward(
        _pointwise(stage.pointwise, rows),
        depthwise.weight,
        depthwise.bias,
        normal=before,
        silu_before=before is None,
        silu_after=after is None,
    )
    return y if after is None else norm_silu(y, after)


def _running_normal(norm: nn.Module | None) -> torch.Tensor | None:
    """Rows of scale and shift from the running statistics; None for a norm that was folded away."""
    if not isinstance(norm, nn.BatchNorm2d):
        return None
    mean, var = norm.get_buffer("running_mean").float(), norm.get_buffer("running_var").float()
    scale = norm.weight.float() * torch.rsqrt(var + norm.eps)
    return torch.stack([scale, norm.bias.float() - mean * scale])


def can_fuse_level(residual: LaplacianResidual, survivors: torch.Tensor | int | None) -> bool:
    """Whether `fused_level` computes what the level would."""
    way = _way_down(residual)
    return (
        not isinstance(survivors, torch.Tensor)
        and survivors != 0
        and residual.form != "gated"
        and residual.down.is_composed
        and residual.up.is_composed
        and isinstance(way, Resampling)
        and way.is_composed
        and not residual.strided
        and not residual.takes_context
        and not torch.compiler.is_compiling()
    )


def _way_down(residual: LaplacianResidual) -> nn.Module:
    return residual.down if residual.hand_down is None else residual.hand_down


def fused_level(residual: LaplacianResidual, r: torch.Tensor, survivors: torch.Tensor | int | None) -> torch.Tensor:
    """What a level that `can_fuse_level` makes of `r`, shape (batch, in_features, *size)."""
    assert not isinstance(survivors, torch.Tensor)
    way = _way_down(residual)
    assert isinstance(way, Resampling)
    down, up = residual.down.composed_for(r), residual.up.composed_for(r)
    smooth = way.composed_for(r, rejecting=residual.psi)
    count = r.shape[0] if survivors is None else min(survivors, r.shape[0])
    split = _Pair if residual.form == "difference" else _Split
    low, seen = split.apply(channels_last(r).flatten(1, -2).to(down.dtype), down, up, count)
    seen = channels_first(seen.unflatten(1, residual.size))
    if residual.form == "difference":
        answer = subtract_halves(answer_both(residual.block, seen), norm=residual.bracket_norm)
    else:
        answer = residual.block(seen)
    y = channels_last(answer).flatten(1, -2).to(smooth.dtype)  # under autocast a block may end in float32
    weight = residual.projection.weight
    if residual.widening:
        joined = _Join.apply(F.linear(low, weight), y, smooth, count)
    else:
        joined = F.linear(_Join.apply(low, y, smooth, count), weight)
    return channels_first(joined.unflatten(1, residual.next_size))


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
        by_low = _changing_first(by_low.contiguous(), up.t(), by_diff, -1)
        return _gradient_by_input(by_low, by_diff, down), None, None, None


class _Pair(torch.autograd.Function):
    """low = D r, and for the first `count` samples r and U low, one after the other; tensors as in `_Split`."""

    @staticmethod
    def forward(
        ctx: Any, r: torch.Tensor, down: torch.Tensor, up: torch.Tensor, count: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(down, up)
        low = torch.bmm(_each(down, r.shape[0]), r)
        pair = r.new_empty(2 * count, *r.shape[1:])
        _copy(r[:count], out=pair[:count])
        torch.bmm(_each(up, count), low[:count], out=pair[count:])
        return low, pair

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_low: torch.Tensor, by_pair: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        down, up = ctx.saved_tensors
        by_first, by_second = by_pair.contiguous().tensor_split(2)
        by_low = _changing_first(by_low.contiguous(), up.t(), by_second, 1)
        return _gradient_by_input(by_low, by_first, down), None, None, None


def _gradient_by_input(by_low: torch.Tensor, by_first: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """What reaches r through D, and for its first samples also directly."""
    count, batch = by_first.shape[0], by_low.shape[0]
    by_r = by_low.new_empty(batch, down.shape[1], by_low.shape[2])
    back = down.t()
    _copy(by_first, out=by_r[:count]).baddbmm_(_each(back, count), by_low[:count])
    torch.bmm(_each(back, batch - count), by_low[count:], out=by_r[count:])
    return by_r


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
