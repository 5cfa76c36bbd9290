"""Launching the depthwise kernels over tensors of shape (batch, height, width, channels)."""

from __future__ import annotations

import torch

from arrn.gpu.depthwise_gradient_kernels import backward_kernel, finish_gradients_kernel
from arrn.gpu.depthwise_kernels import forward_kernel, pixel_kernel
from arrn.gpu.tiling import (
    RowTiling,
    StripTiling,
    backward_tiling,
    forward_tiling,
    inference_tiling,
    joining,
    on_the_gpu_of_its_input,
)


def _divide(x: torch.Tensor, tiling: StripTiling) -> tuple[int, tuple[int], tuple[int, int, int, int]]:
    """The programs along the strips, the grid of all programs, and the sizes that each kernel is told."""
    batch, height, width, channels = x.shape
    strips = batch * -(-height // tiling.rows)
    programs = -(-strips // tiling.strips)
    return programs, (programs * -(-channels // tiling.channels),), (strips, height, width, channels)


def _blocks(x: torch.Tensor, tiling: StripTiling) -> dict[str, int]:
    return {
        "WHOLE": x.shape[1] % tiling.rows == 0,
        "ROWS": tiling.rows,
        "BLOCK_P": tiling.strips,
        "BLOCK_C": tiling.channels,
        "num_warps": tiling.warps,
    }


@on_the_gpu_of_its_input
def depthwise_forward(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    normal: torch.Tensor | None = None,
    pivot: torch.Tensor | None = None,
    silu_before: bool = False,
    silu_after: bool = False,
    tiling: StripTiling | RowTiling | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The convolution, with what may be fused to either side of it.

    Args:
        x: shape (batch, height, width, channels), contiguous.
        weight: shape (channels, 1, 3, 3).
        bias: shape (channels,); added to the output.
        normal: rows of scale and shift, each of `channels` float32, contiguous: x is normalised and activated as it
            is read.
        pivot: about the mean of each channel of the output, float32; asks for partial moments.
        silu_before: activate x as it is read, without normalising it.
        silu_after: activate the output.
        tiling: by strips, or by pixels (rows of channels); by default as measured for the shape.

    Returns:
        The output, and per program the count, mean and squares about it of each channel (with `pivot`).
    """
    if tiling is None:
        tiling = inference_tiling(x.shape, activated=silu_after) if pivot is None else forward_tiling(x.shape)
    y = torch.empty_like(x)
    # A pointer that is not used must still be one.
    seen = (x, weight.contiguous(), x if bias is None else bias, x if normal is None else normal)
    around = {
        "ACTIVATE": normal is not None or silu_before,
        "PLAIN": normal is None,
        "BIAS": bias is not None,
        "SILU": silu_after,
    }
    if isinstance(tiling, RowTiling):
        assert pivot is None
        pixels, channels = x.numel() // x.shape[3], x.shape[3]
        grid = (-(-pixels // tiling.rows) * -(-channels // tiling.channels),)
        blocks = {"BLOCK_P": tiling.rows, "BLOCK_C": tiling.channels, "num_warps": tiling.warps}
        pixel_kernel[grid](*seen, y, pixels, *x.shape[1:], **blocks, **around)
        return y, None
    programs, grid, sizes = _divide(x, tiling)
    partial = None if pivot is None else x.new_empty((programs, 3, x.shape[3]), dtype=torch.float32)
    forward_kernel[grid](
        *seen,
        x if pivot is None else pivot,
        y,
        y if partial is None else partial,
        *sizes,
        **_blocks(x, tiling),
        **around,
        MEASURE=partial is not None,
    )
    return y, partial


@on_the_gpu_of_its_input
def depthwise_backward(
    gradient: torch.Tensor,
    weight: torch.Tensor,
    x: torch.Tensor,
    normal: torch.Tensor | None = None,
    tiling: StripTiling | None = None,
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
    backward_kernel[grid](
        gradient,
        weight.contiguous(),
        x,
        x if normal is None else normal,
        out,
        partial,
        *sizes,
        **_blocks(x, tiling),
        ACTIVATE=normal is not None,
    )
    return out, *_finish_gradients(partial)


def _finish_gradients(partial: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Adds up what the programs left, shape (programs, 11, channels): the weights' gradient and the norm's sums."""
    programs, _, channels = partial.shape
    by_weight, sums = (partial.new_empty(shape) for shape in ((channels, 1, 3, 3), (2, channels)))
    grid = (-(-11 * channels // 16),)
    finish_gradients_kernel[grid](partial, by_weight, sums, channels, programs, BLOCK_W=16, **joining(programs))
    return by_weight, sums
