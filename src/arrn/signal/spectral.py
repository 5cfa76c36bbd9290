"""Perfect resampling by Fourier and cosine transforms: the independent reference of the matrix form.

It costs O(N log N) per axis instead of O(N M), with a much larger constant, so it wins only on very
large grids (`benchmarks/core.py` measures where). Real matrices run in half precision, compile and
export; transforms do not, so networks never come here.
"""

from __future__ import annotations

import torch

from arrn.signal.grid import Grid
from arrn.signal.kernels import WhittakerShannon

__all__ = ["resample_spectral"]


def resample_spectral(x: torch.Tensor, grid: Grid, kernel: WhittakerShannon) -> torch.Tensor:
    """Resamples `x`, shaped (batch, channels, *space), to `grid` by FFT (periodic) or DCT (symmetric)."""
    along = _resample_cosine if kernel.boundary == "symmetric" else _resample_fourier
    for axis, target in enumerate(grid, start=2):
        if x.shape[axis] != target or not kernel.keeps(target):
            x = along(x, axis, target)
    return x


def _resample_fourier(x: torch.Tensor, axis: int, target: int) -> torch.Tensor:
    source = x.shape[axis]
    kept = (min(source, target) - 1) // 2 + 1  # frequencies |k| < N/2 of the smaller grid
    return _move_samples(x, axis, kept, source, target, period=target)


def _resample_cosine(x: torch.Tensor, axis: int, target: int) -> torch.Tensor:
    # The half-sample symmetric extension has period 2N, and its Fourier series is the cosine series.
    source = x.shape[axis]
    mirrored = torch.cat([x, x.flip(axis)], dim=axis)
    kept = min(source, target)
    return _move_samples(mirrored, axis, kept, 2 * source, 2 * target, period=2 * target).narrow(axis, 0, target)


def _move_samples(x: torch.Tensor, axis: int, kept: int, source: int, target: int, period: int) -> torch.Tensor:
    """Keeps the lowest frequencies and moves them from one cell-centred periodic grid to another."""
    spectrum = torch.fft.rfft(x, dim=axis, norm="forward").narrow(axis, 0, kept)
    # Sample i of N sits at (i + 1/2)/N: half a cell of phase on either grid.
    frequency = torch.arange(kept, dtype=x.dtype, device=x.device)
    phase = torch.pi * frequency * (1.0 / target - 1.0 / source)
    shift = torch.polar(torch.ones_like(phase), phase)
    spectrum = spectrum * shift.view(-1, *[1] * (x.ndim - axis - 1))
    moved: torch.Tensor = torch.fft.irfft(spectrum, n=period, dim=axis, norm="forward")
    return moved
