"""Launching the depthwise kernels over tensors of shape (batch, height, width, channels)."""

from __future__ import annotations

import torch

from arrn.gpu.depthwise_kernels import backward_input_kernel, backward_weight_kernel, forward_kernel
from arrn.gpu.norm_launch import add_up
from arrn.gpu.tiling import Tiling, strip_tiling

__all__ = ["depthwise_backward_input", "depthwise_backward_weight", "depthwise_forward"]


def _divide(x: torch.Tensor, tiling: Tiling) -> tuple[tuple[int, int], tuple[int, int, int, int]]:
    """The grid of programs, and the sizes that each kernel is told."""
    batch, height, width, channels = x.shape
    strips = batch * -(-height // tiling.rows)
    return (-(-strips // tiling.strips), -(-channels // tiling.channels)), (strips, height, width, channels)


def _blocks(tiling: Tiling) -> dict[str, int]:
    return {
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
    tiling = tiling or strip_tiling(x.shape[1], x.shape[3])
    grid, sizes = _divide(x, tiling)
    y = torch.empty_like(x)
    partial = None if pivot is None else x.new_empty((grid[0], 3, x.shape[3]), dtype=torch.float32)
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
        **_blocks(tiling),
        ACTIVATE=normal is not None or silu_before,
        PLAIN=normal is None,
        BIAS=bias is not None,
        SILU=silu_after,
        MEASURE=partial is not None,
    )
    return y, partial


def depthwise_backward_input(
    gradient: torch.Tensor,
    weight: torch.Tensor,
    x: torch.Tensor | None = None,
    normal: torch.Tensor | None = None,
    tiling: Tiling | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The gradient by the convolution's input, or with `x` and `normal` by what SiLU saw.

    Returns:
        The gradient and, with `normal`, its sums over rows: alone, and times the normalised x; shape (2, channels).
    """
    tiling = tiling or strip_tiling(gradient.shape[1], gradient.shape[3])
    grid, sizes = _divide(gradient, tiling)
    out = torch.empty_like(gradient)
    fused = x is not None and normal is not None
    partial = gradient.new_empty((grid[0], 2, gradient.shape[3]), dtype=torch.float32) if fused else None
    scale, shift, mean, inverse_std = (gradient,) * 4 if normal is None else normal
    backward_input_kernel[grid](
        gradient,
        weight.contiguous(),
        gradient if x is None else x,
        scale,
        shift,
        mean,
        inverse_std,
        out,
        out if partial is None else partial,
        *sizes,
        **_blocks(tiling),
        ACTIVATE=fused,
    )
    return out, None if partial is None else add_up(partial)


def depthwise_backward_weight(
    gradient: torch.Tensor, x: torch.Tensor, normal: torch.Tensor | None = None, tiling: Tiling | None = None
) -> torch.Tensor:
    """The gradient by the weights, shape (channels, 1, 3, 3), float32; with `normal`, x is activated as it is read."""
    tiling = tiling or strip_tiling(x.shape[1], x.shape[3])
    grid, sizes = _divide(x, tiling)
    partial = x.new_empty((grid[0], x.shape[3] * 9), dtype=torch.float32)
    backward_weight_kernel[grid](
        gradient,
        x,
        x if normal is None else normal[0],
        x if normal is None else normal[1],
        partial,
        *sizes,
        **_blocks(tiling),
        ACTIVATE=normal is not None,
    )
    return add_up(partial).view(-1, 1, 3, 3)
