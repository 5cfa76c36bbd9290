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
from arrn.gpu.tiling import matrix_tiling, row_programs

__all__ = ["add_up", "finish_moments", "measure_moments", "norm_silu", "norm_silu_backward", "norm_silu_sums"]


def _divide(x: torch.Tensor, programs: int | None = None) -> tuple[tuple[int, int], int, int, dict[str, int]]:
    """The grid of programs, the rows and channels of x as a matrix, and the blocks that a kernel is told.

    A kernel that sums over rows has `programs` of them along the rows, which share the blocks.
    """
    rows, channels = x.numel() // x.shape[-1], x.shape[-1]
    tiling = matrix_tiling(channels)
    grid = (programs or -(-rows // tiling.rows), -(-channels // tiling.channels))
    return grid, rows, channels, {"BLOCK_M": tiling.rows, "BLOCK_C": tiling.channels, "num_warps": tiling.warps}


def _programs(x: torch.Tensor) -> int:
    channels = x.shape[-1]
    return row_programs(x.numel() // channels, channels, matrix_tiling(channels))


def add_up(partial: torch.Tensor) -> torch.Tensor:
    """The sum over the first axis, in a fixed order."""
    programs, width = partial.shape[0], partial[0].numel()
    out = torch.empty(partial.shape[1:], dtype=torch.float32, device=partial.device)
    add_up_kernel[(-(-width // 32),)](partial, out, width, programs, BLOCK_P=64, BLOCK_W=32, num_warps=4)
    return out


def measure_moments(x: torch.Tensor) -> torch.Tensor:
    """Partial moments of each channel: rows of count, mean and squares about it, shape (programs, 3, channels)."""
    programs = _programs(x)
    grid, rows, channels, blocks = _divide(x, programs)
    partial = x.new_empty((programs, 3, channels), dtype=torch.float32)
    moments_kernel[grid](x, partial, rows, channels, programs, **blocks)
    return partial


def finish_moments(
    partial: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    momentum: float,
    eps: float,
) -> torch.Tensor:
    """Joins partial moments and moves the running ones on, in place.

    Returns:
        Rows of scale, shift, mean and 1 / std, shape (4, channels), float32.
    """
    programs, _, channels = partial.shape
    normal = torch.empty((4, channels), dtype=torch.float32, device=partial.device)
    finish_moments_kernel[(1, -(-channels // 32))](
        partial,
        gamma,
        beta,
        running_mean,
        running_var,
        normal,
        channels,
        programs,
        momentum,
        eps,
        BLOCK_P=32,
        BLOCK_C=32,
        num_warps=4,
    )
    return normal


def norm_silu(x: torch.Tensor, normal: torch.Tensor) -> torch.Tensor:
    """silu(x scale + shift)."""
    grid, rows, channels, blocks = _divide(x)
    y = torch.empty_like(x)
    norm_silu_kernel[grid](x, normal, y, rows, channels, **blocks)
    return y


def norm_silu_sums(gradient: torch.Tensor, x: torch.Tensor, normal: torch.Tensor) -> torch.Tensor:
    """Sums over rows of the gradient by what SiLU saw: alone, and times the normalised x; shape (2, channels)."""
    programs = _programs(x)
    grid, rows, channels, blocks = _divide(x, programs)
    partial = x.new_empty((programs, 2, channels), dtype=torch.float32)
    norm_silu_sums_kernel[grid](gradient, x, normal, partial, rows, channels, programs, **blocks)
    return add_up(partial)


def norm_silu_backward(
    gradient: torch.Tensor, x: torch.Tensor, normal: torch.Tensor, sums: torch.Tensor, through_silu: bool
) -> torch.Tensor:
    """The gradient by x, from that by the output or, without `through_silu`, by what SiLU saw."""
    grid, rows, channels, blocks = _divide(x)
    out = torch.empty_like(x)
    norm_silu_backward_kernel[grid](gradient, x, normal, sums, out, rows, channels, **blocks, THROUGH_SILU=through_silu)
    return out
