"""`resample`: a signal on one grid, taken to another."""

from __future__ import annotations

import torch

from arrn.signal.grid import Grid, Size, as_grid, check_signal
from arrn.signal.kernels import Kernel, WhittakerShannon
from arrn.signal.kernels import kernel as as_kernel
from arrn.signal.operators import AxisOperator, apply_axes, axis_operators
from arrn.signal.spectral import resample_spectral

__all__ = ["resample", "resample_by_matrices"]

# The matrix product wins up to about this many multiply-adds per line of samples; measured by
# benchmarks/core.py, see docs/performance.md.
SPECTRAL_CROSSOVER = 2048 * 1024


def resample(x: torch.Tensor, size: Size, kernel: str | Kernel = "perfect") -> torch.Tensor:
    """Takes a signal to another resolution: smooths where the grid shrinks, interpolates where it grows.

    Both grids are cell-centred on the same domain (the convention of ``align_corners=False``); the
    border is the kernel's. Works for 1, 2 and 3 axes, odd sizes, rectangles and any ratio.

    Args:
        x: shape (batch, channels, *space), floating point.
        size: the target grid, one number for all axes or one per axis.
        kernel: a kernel or its name, ``"perfect"``, ``"fair"`` or ``"poor"``.

    Returns:
        Shape (batch, channels, *size), dtype, device and memory format of `x`.

    >>> x = torch.rand(1, 3, 48, 31)
    >>> resample(x, (24, 20)).shape
    torch.Size([1, 3, 24, 20])
    >>> low = resample(x, 16)
    >>> torch.allclose(resample(resample(low, 48), 16), low, atol=1e-5)
    True
    """
    source = check_signal(x)
    target = as_grid(size, len(source))
    kernel = as_kernel(kernel)
    if isinstance(kernel, WhittakerShannon) and _spectral_pays(x, source, target):
        return resample_spectral(x, target, kernel)
    return resample_by_matrices(x, target, kernel)


def _spectral_pays(x: torch.Tensor, source: Grid, target: Grid) -> bool:
    largest = max(n * m for n, m in zip(source, target, strict=True))
    return (
        largest > SPECTRAL_CROSSOVER and x.dtype in (torch.float32, torch.float64) and not torch.compiler.is_compiling()
    )


def resample_by_matrices(x: torch.Tensor, target: Grid, kernel: Kernel) -> torch.Tensor:
    """`resample` by matrix products whatever the size: the only form that networks use."""
    source = tuple(x.shape[2:])
    return apply_axes(x, _operators_like(x, source, target, kernel))


_Key = tuple[Kernel, Grid, Grid, torch.dtype, torch.device]
_operators: dict[_Key, list[AxisOperator]] = {}


def _operators_like(x: torch.Tensor, source: Grid, target: Grid, kernel: Kernel) -> list[AxisOperator]:
    """The matrices in x's dtype on x's device; recent ones are kept there, since copying to a GPU waits."""
    key = (kernel, source, target, x.dtype, x.device)
    found = None if torch.compiler.is_compiling() else _operators.get(key)
    if found is not None:
        return found
    with torch.inference_mode(False):
        operators = [
            (axis, matrix.to(dtype=x.dtype, device=x.device)) for axis, matrix in axis_operators(kernel, source, target)
        ]
    # Tracing hands out stand-ins for tensors (a subclass), which must not outlive the trace.
    if not torch.compiler.is_compiling() and all(type(matrix) is torch.Tensor for _, matrix in operators):
        while len(_operators) >= 64:
            _operators.pop(next(iter(_operators)), None)
        _operators[key] = operators
    return operators
