"""Perfect resampling by Fourier and cosine transforms: the independent reference of the matrix form.

It costs O(N log N) per axis instead of O(N M), with a much larger constant, so it wins on large grids
only (`arrn benchmark resampling` measures where). Real matrices run in half precision, compile and export;
transforms do not, so networks come here only where a matrix would be too large (`resample_in_network`).
"""

from __future__ import annotations

import torch

from arrn.signal.grid import Grid, grid_of
from arrn.signal.kernels import WhittakerShannon
from arrn.signal.operators import axes_to_resample, is_channels_last


def resample_spectral(x: torch.Tensor, grid: Grid, kernel: WhittakerShannon) -> torch.Tensor:
    """Resamples `x`, shaped (batch, channels, *space), to `grid` by FFT (periodic) or DCT (symmetric)."""
    memory_format = torch.channels_last if x.ndim == 4 else torch.channels_last_3d
    channels_last = x.ndim > 3 and is_channels_last(x)
    along = _resample_cosine if kernel.boundary == "symmetric" else _resample_fourier
    for axis in axes_to_resample(kernel, grid_of(x), grid):
        # Transforms of strided lines are up to twice as slow as a copy that makes them contiguous.
        lines = x.movedim(2 + axis, -1).contiguous()
        x = along(lines, grid[axis]).movedim(-1, 2 + axis)
    return x.contiguous(memory_format=memory_format) if channels_last else x.contiguous()


def _resample_fourier(x: torch.Tensor, target: int) -> torch.Tensor:
    source = x.shape[-1]
    kept = (min(source, target) - 1) // 2 + 1  # frequencies |k| < N/2 of the smaller grid
    return _move_samples(x, kept, target)


def _resample_cosine(x: torch.Tensor, target: int) -> torch.Tensor:
    # The half-sample symmetric extension has period 2N, and its Fourier series is the cosine series.
    mirrored = torch.cat([x, x.flip(-1)], dim=-1)
    return _move_samples(mirrored, min(x.shape[-1], target), 2 * target)[..., :target]


def _move_samples(x: torch.Tensor, kept: int, target: int) -> torch.Tensor:
    """Keeps the lowest frequencies of the last axis and moves them to another cell-centred periodic grid."""
    spectrum = torch.fft.rfft(x, norm="forward")[..., :kept]
    # Sample i of N sits at (i + 1/2)/N: half a cell of phase on either grid.
    frequency = torch.arange(kept, dtype=x.dtype, device=x.device)
    phase = torch.pi * frequency * (1.0 / target - 1.0 / x.shape[-1])
    shift = torch.polar(torch.ones_like(phase), phase)
    moved: torch.Tensor = torch.fft.irfft(spectrum * shift, n=target, norm="forward")
    return moved
