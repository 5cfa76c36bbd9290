"""A pointwise convolution as a matrix product over rows of channels, whose weights' gradient is summed in float32."""

from __future__ import annotations

from typing import Any

import torch

from arrn.gpu.autocasting import product_dtype

__all__ = ["pointwise_rows"]


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
