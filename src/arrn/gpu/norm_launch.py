"""Launching the norm kernels over tensors of shape (..., channels)."""

from __future__ import annotations

import torch

from arrn.gpu.norm_kernels import (
    add_up_kernel,
    finish_moments_kernel,
    moments_kernel,
    norm_silu_backward_kernel,
    norm_silu_kernel,
    norm_silu_sums_kernel,
)
from arrn.gpu.tiling import RowTiling, joining, matrix_tiling, on_the_gpu_of_its_input, row_programs, sums_tiling


def _divide(
    x: torch.Tensor, tiling: RowTiling, programs: int = 0, backwards: bool = False
) -> tuple[tuple[int], int, int, dict[str, int]]:
    """The grid of programs, the rows and channels of x as a matrix, and the blocks that a kernel is told.

    A kernel that sums over rows has `programs` of them along the rows, which share the blocks.
    """
    rows, channels = x.numel() // x.shape[-1], x.shape[-1]
    grid = ((programs or -(-rows // tiling.rows)) * -(-channels // tiling.channels),)
    blocks = {"BLOCK_M": tiling.rows, "BLOCK_C": tiling.channels, "num_warps": tiling.warps}
    return grid, rows, channels, {**blocks, "BACKWARDS": backwards}


def _programs(x: torch.Tensor, tiling: RowTiling) -> int:
    channels = x.shape[-1]
    return row_programs(x.numel() // channels, channels, tiling)


@on_the_gpu_of_its_input
def add_up(partial: torch.Tensor) -> torch.Tensor:
    """The sum over the first axis, in a fixed order."""
    programs, width = partial.shape[0], partial[0].numel()
    out = torch.empty(partial.shape[1:], dtype=torch.float32, device=partial.device)
    add_up_kernel[(-(-width // 16),)](partial, out, width, programs, BLOCK_W=16, **joining(programs))
    return out


@on_the_gpu_of_its_input
def measure_moments(x: torch.Tensor, tiling: RowTiling | None = None) -> torch.Tensor:
    """Partial moments of each channel: rows of count, mean and squares about it, shape (programs, 3, channels)."""
    tiling = tiling or sums_tiling(x.shape[-1])
    programs = _programs(x, tiling)
    grid, rows, channels, blocks = _divide(x, tiling, programs, backwards=True)
    partial = x.new_empty((programs, 3, channels), dtype=torch.float32)
    moments_kernel[grid](x, partial, rows, channels, programs, **blocks)
    return partial


@on_the_gpu_of_its_input
def finish_moments(
    partial: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    batches: torch.Tensor,
    momentum: float,
    eps: float,
) -> torch.Tensor:
    """Joins partial moments and moves the running ones on, in place, and the count of batches.

    Returns:
        Rows of scale, shift, mean and 1 / std, shape (4, channels), float32.
    """
    programs, _, channels = partial.shape
    normal = torch.empty((4, channels), dtype=torch.float32, device=partial.device)
    finish_moments_kernel[(-(-channels // 16),)](
        partial,
        gamma,
        beta,
        running_mean,
        running_var,
        batches,
        normal,
        channels,
        programs,
        momentum,
        eps,
        BLOCK_C=16,
        **joining(programs),
    )
    return normal


def _masking(x: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, int, dict[str, bool]]:
    """What a kernel is told of the factors of each sample's channels, shape (batch, channels), if there are any."""
    if mask is None:
        return x, 1, {"MASKED": False}
    return mask.contiguous(), x.numel() // mask.numel(), {"MASKED": True}


@on_the_gpu_of_its_input
def norm_silu(
    x: torch.Tensor, normal: torch.Tensor, mask: torch.Tensor | None = None, tiling: RowTiling | None = None
) -> torch.Tensor:
    """silu(x scale + shift), times `mask`."""
    grid, rows, channels, blocks = _divide(x, tiling or matrix_tiling(x.shape[-1]), backwards=True)
    y = torch.empty_like(x)
    factors, rows_each, masking = _masking(x, mask)
    norm_silu_kernel[grid](x, normal, factors, y, rows, rows_each, channels, **blocks, **masking)
    return y


@on_the_gpu_of_its_input
def norm_silu_sums(
    gradient: torch.Tensor,
    x: torch.Tensor,
    normal: torch.Tensor,
    mask: torch.Tensor | None = None,
    tiling: RowTiling | None = None,
) -> torch.Tensor:
    """Sums over rows of the gradient by what SiLU saw: alone, and times the normalised x; shape (2, channels)."""
    tiling = tiling or sums_tiling(x.shape[-1])
    programs = _programs(x, tiling)
    grid, rows, channels, blocks = _divide(x, tiling, programs, backwards=True)
    partial = x.new_empty((programs, 2, channels), dtype=torch.float32)
    factors, rows_each, masking = _masking(x, mask)
    norm_silu_sums_kernel[grid](
        gradient, x, normal, factors, partial, rows, rows_each, channels, programs, **blocks, **masking
    )
    return add_up(partial)


@on_the_gpu_of_its_input
def norm_silu_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    normal: torch.Tensor,
    sums: torch.Tensor,
    through_silu: bool,
    mask: torch.Tensor | None = None,
    tiling: RowTiling | None = None,
) -> torch.Tensor:
    """The gradient by x, from that by the output or, without `through_silu`, by what SiLU saw."""
    grid, rows, channels, blocks = _divide(x, tiling or matrix_tiling(x.shape[-1]))
    out = torch.empty_like(x)
    factors, rows_each, masking = _masking(x, mask)
    norm_silu_backward_kernel[grid](
        gradient,
        x,
        normal,
        factors,
        sums,
        out,
        rows,
        rows_each,
        channels,
        **blocks,
        THROUGH_SILU=through_silu,
        **masking,
    )
    return out
