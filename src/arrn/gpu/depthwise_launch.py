"""Launching the depthwise kernels over tensors of shape (batch, height, width, channels)."""

from __future__ import annotations

import torch

from arrn.gpu.depthwise_kernels import backward_kernel, forward_kernel
from arrn.gpu.norm_launch import finish_gradients
from arrn.gpu.tiling import Tiling, backward_tiling, forward_tiling

__all__ = ["depthwise_backward", "depthwise_forward"]


def _divide(x: torch.Tensor, tiling: Tiling) -> tuple[int, tuple[int], tuple[int, int, int, int]]:
    """The programs along the strips, the grid of all programs, and the sizes that each kernel is told."""
    batch, height, width, channels = x.shape
    strips = batch * -(-height // tiling.rows)
    programs = -(-strips // tiling.strips)
    return programs, (programs * -(-channels // tiling.channels),), (strips, height, width, channels)


def _blocks(x: torch.Tensor, tiling: Tiling) -> dict[str, int]:
    return {
        "WHOLE": x.shape[1] % tiling.rows == 0,
        "ROWS": tiling.rows,
        "BLOCK_P": tiling.strips,
        "BLOCK_C": tiling.channels,
        "num_warps": tiling.warps,
    }


def depthwise_forward(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    normal: torch.Tensor | None = None,
    pivot: torch.Tensor | None = None,
    silu_before: bool = False,
    silu_after: bool = False,
    tiling: Tiling | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The convolution, with what may be fused to either side of it.

    Args:
        x: shape (batch, height, width, channels), contiguous.
        weight: shape (channels, 1, 3, 3).
        bias: shape (channels,); added to the output.
        normal: rows of scale and shift, each of `channels` float32: x is normalised and activated as it is read.
        pivot: about the mean of each channel of the output, float32; asks for partial moments.
        silu_before: activate x as it is read, without normalising it.
        silu_after: activate the output.

    Returns:
        The output, and per program the count, mean and squares about it of each channel (with `pivot`).
    """
    tiling = tiling or forward_tiling(x.shape)
    programs, grid, sizes = _divide(x, tiling)
    y = torch.empty_like(x)
    partial = None if pivot is None else x.new_empty((programs, 3, x.shape[3]), dtype=torch.float32)
    # A pointer that is not used must still be one.
    forward_kernel[grid](
        x,
        weight.contiguous(),
        x if bias is None else bias,
        x if normal is None else normal[0],
        x if normal is None else normal[1],
        x if pivot is None else pivot,
        y,
        y if partial is None else partial,
        *sizes,
        **_blocks(x, tiling),
        ACTIVATE=normal is not None or silu_before,
        PLAIN=normal is None,
        BIAS=bias is not None,
        SILU=silu_after,
        MEASURE=partial is not None,
    )
    return y, partial


def depthwise_backward(
    gradient: torch.Tensor,
    weight: torch.Tensor,
    x: torch.Tensor,
    normal: torch.Tensor | None = None,
    tiling: Tiling | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of the convolution; with `normal`, of the convolution of the normalised and activated x.

    Returns:
        The gradient by x, or with `normal` by what SiLU saw; the gradient by the weights, shape (channels, 1, 3, 3),
        float32; with `normal` the sums over rows of the first: alone, and times the normalised x, shape (2, channels).
    """
    tiling = tiling or backward_tiling(x.shape)
    programs, grid, sizes = _divide(x, tiling)
    out = torch.empty_like(x)
    partial = x.new_empty((programs, 11, x.shape[3]), dtype=torch.float32)
    scale, shift, mean, inverse_std = (x,) * 4 if normal is None else normal
    backward_kernel[grid](
        gradient,
        weight.contiguous(),
        x,
        scale,
        shift,
        mean,
        inverse_std,
        out,
        partial,
        *sizes,
        **_blocks(x, tiling),
        ACTIVATE=normal is not None,
    )
    by_weight, sums = finish_gradients(partial)
    return out, by_weight, sums
