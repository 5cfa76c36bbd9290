"""What `arrn.nn.fast` trains with: products over rows of channels, and norms fused with what follows them."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from arrn.gpu.depthwise_launch import depthwise_backward, depthwise_forward
from arrn.gpu.norm_launch import norm_silu, norm_silu_backward, norm_silu_sums
from arrn.gpu.switch import product_dtype


class _Pointwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        narrow = weight.to(rows.dtype)
        ctx.save_for_backward(rows, narrow)
        ctx.weight_dtype = weight.dtype
        return torch.nn.functional.linear(rows, narrow)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows, weight = ctx.saved_tensors
        arriving = gradient.flatten(0, -2)
        pair = arriving.t(), rows.flatten(0, -2)
        # The product's own sums are float32: rounding them to half precision on the way costs a pass and digits.
        same = ctx.weight_dtype == rows.dtype
        by_weight = torch.mm(*pair) if same else torch.mm(*pair, out_dtype=ctx.weight_dtype)
        return torch.mm(arriving, weight).view(rows.shape), by_weight


def pointwise_rows(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Rows of channels times the transposed (out, in) weight.

    Args:
        rows: shape (..., in). Under autocast it is taken in that dtype.
        weight: of the same dtype or wider.
    """
    y: torch.Tensor = _Pointwise.apply(rows.to(product_dtype(rows)), weight)
    return y


class _NormSilu(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        gamma: torch.Tensor,
        beta: torch.Tensor,
        normal: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        ctx.save_for_backward(x, normal, mask)
        return norm_silu(x, normal, mask)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, normal, mask = ctx.saved_tensors
        gradient = gradient.contiguous()
        sums = norm_silu_sums(gradient, x, normal, mask)
        by_x = norm_silu_backward(gradient, x, normal, sums, through_silu=True, mask=mask)
        return by_x, sums[1], sums[0], None, None


class _NormSiluDepthwise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        gamma: torch.Tensor,
        beta: torch.Tensor,
        normal: torch.Tensor,
        weight: torch.Tensor,
        pivot: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        y, partial = depthwise_forward(x, weight, normal=normal, pivot=pivot)
        assert partial is not None
        # The activated input is not kept: the gradient makes it again from x as it reads it.
        ctx.save_for_backward(x, normal, weight)
        ctx.mark_non_differentiable(partial)
        return y, partial

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, normal, weight = ctx.saved_tensors
        gradient = gradient.contiguous()
        seen, by_weight, sums = depthwise_backward(gradient, weight, x, normal)
        by_x = norm_silu_backward(seen, x, normal, sums, through_silu=False)
        return by_x, sums[1], sums[0], None, by_weight.to(weight.dtype), None


def norm_silu_rows(
    x: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    normal: torch.Tensor,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """silu(batch_norm(x)), with gradients by x, gamma and beta; times `mask`, shape (batch, channels), if any."""
    y: torch.Tensor = _NormSilu.apply(x, gamma, beta, normal, mask)
    return y


def norm_silu_depthwise(
    x: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    normal: torch.Tensor,
    weight: torch.Tensor,
    pivot: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The depthwise convolution of silu(batch_norm(x)), and the partial moments of its output about `pivot`."""
    y, partial = _NormSiluDepthwise.apply(x, gamma, beta, normal, weight, pivot)
    return y, partial
