"""`resample`: a signal on one grid, taken to another."""

from __future__ import annotations

import torch

from arrn.signal.grid import Grid, Size, as_grid, check_signal, grid_of
from arrn.signal.kernels import Kernel, KernelLike, WhittakerShannon
from arrn.signal.kernels import kernel as as_kernel
from arrn.signal.operators import apply_axes, axes_to_resample
from arrn.signal.spectral import resample_spectral

# Up to how many entries the matrix of an axis wins against the transform, for lines (1 axis) and for
# two or more axes; measured by `arrn benchmark resampling`, see docs/performance.md.
CROSSOVER = {
    ("cpu", "symmetric"): (2**17, 2**21),
    ("cpu", "periodic"): (2**14, 2**16),
    ("cuda", "symmetric"): (2**23, 2**20),
    ("cuda", "periodic"): (2**22, 2**19),
}

# Networks resample by matrices, which run in half precision, compile and export, up to this many entries an axis
# (1448 samples to half of that). Beyond it, as for a second of sound, a matrix would take up to hundreds of megabytes
# and a hundred times the arithmetic of a transform.
LARGEST_MATRIX = 2**20


def resample(x: torch.Tensor, size: Size, kernel: KernelLike = "perfect") -> torch.Tensor:
    """Takes a signal to another resolution: smooths where the grid shrinks, interpolates where it grows.

    Both grids are cell-centred on the same domain (the convention of ``align_corners=False``); the
    border is the kernel's. Works for 1, 2 and 3 axes, odd sizes, rectangles and any ratio.

    Args:
        x: shape (batch, channels, *space), floating point.
        size: the target grid, one number for all axes or one per axis.
        kernel: a kernel or its name, ``"perfect"``, ``"fair"`` or ``"poor"``.

    Returns:
        A signal of shape (batch, channels, *size), with the dtype, device and memory format of `x`; `x` itself if the
        size and the kernel change nothing.

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
    if isinstance(kernel, WhittakerShannon) and _spectral_pays(x, source, target, kernel.boundary):
        return resample_spectral(x, target, kernel)
    return resample_by_matrices(x, target, kernel)


def _spectral_pays(x: torch.Tensor, source: Grid, target: Grid, boundary: str) -> bool:
    crossover = CROSSOVER.get((x.device.type, boundary))
    if crossover is None or x.dtype not in (torch.float32, torch.float64) or torch.compiler.is_compiling():
        return False
    largest = max(n * m for n, m in zip(source, target, strict=True))
    return largest > crossover[0 if len(source) == 1 else 1]


def resample_by_matrices(x: torch.Tensor, target: Grid, kernel: Kernel) -> torch.Tensor:
    """`resample` by matrix products whatever the size."""
    source = grid_of(x)
    axes = axes_to_resample(kernel, source, target)
    return apply_axes(x, [(n, kernel.matrix_on(source[n], target[n], x.dtype, x.device)) for n in axes])


def too_long_for_matrices(source: Grid, target: Grid, kernel: Kernel) -> bool:
    """Whether a network takes `source` to `target` by transforms, since a matrix would be too large.

    >>> too_long_for_matrices((8000,), (4000,), WhittakerShannon())
    True
    """
    axes = axes_to_resample(kernel, source, target)
    return isinstance(kernel, WhittakerShannon) and any(source[n] * target[n] > LARGEST_MATRIX for n in axes)


def resample_in_network(x: torch.Tensor, target: Grid, kernel: Kernel) -> torch.Tensor:
    """`resample` as networks do it: by matrices, but for lines that are too long for them."""
    source = grid_of(x)
    if not too_long_for_matrices(source, target, kernel):
        return resample_by_matrices(x, target, kernel)
    assert isinstance(kernel, WhittakerShannon)
    # Transforms of half-precision numbers are rare and rough: in float32, and back.
    wide = x if x.dtype == torch.float64 else x.float()
    return resample_spectral(wide, target, kernel).to(x.dtype)
