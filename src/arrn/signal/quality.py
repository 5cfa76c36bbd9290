"""How good a kernel is: what it does to the frequencies it should keep and to those it should remove."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arrn.errors import ArrnError
from arrn.signal.grid import as_count
from arrn.signal.kernels import Kernel, KernelLike, WhittakerShannon
from arrn.signal.kernels import kernel as as_kernel


@dataclass(frozen=True)
class KernelQuality:
    """A kernel's smoothing P = U D from `size` samples to the band of `next_size`, mode by mode.

    For each mode v_k of the larger grid (unit energy, k from low to high frequency):

    Attributes:
        gain: <v_k, P v_k>; ideally 1 in the lower band and 0 above it.
        leak: the energy of P v_k - v_k in the lower band, and of P v_k above the lower band; ideally 0.
        band: how many modes make up the lower band.
    """

    kernel: Kernel
    size: int
    next_size: int
    band: int
    gain: NDArray[np.float64]
    leak: NDArray[np.float64]

    @property
    def passband_error(self) -> float:
        """The largest |gain - 1| in the lower band."""
        return float(np.abs(self.gain[: self.band] - 1.0).max())

    @property
    def stopband_leakage(self) -> float:
        """The mean energy that passes from above the lower band."""
        return float(self.leak[self.band :].mean()) if self.band < len(self.leak) else 0.0

    @property
    def diff_leakage(self) -> float:
        """The share of a white lower-band signal's energy that ``diff = x - P x`` still holds.

        A residual receives this share where it should receive zero.
        """
        return float(self.leak[: self.band].mean())

    def __str__(self) -> str:
        return (
            f"{self.kernel.name}/{self.kernel.boundary} {self.size} -> {self.next_size}: "
            f"passband error {self.passband_error:.2e}, "
            f"stopband leakage {decibel(self.stopband_leakage):.0f} dB, "
            f"diff leakage {decibel(self.diff_leakage):.0f} dB"
        )


def decibel(energy: float) -> float:
    """A share of energy in decibels; zero counts as -320."""
    return 10 * math.log10(max(energy, 1e-32))


def kernel_quality(kernel: KernelLike, size: int = 32, next_size: int = 16) -> KernelQuality:
    """Measures a kernel between two sizes of one axis, against the ideal projection.

    >>> kernel_quality("perfect").diff_leakage < 1e-28
    True
    >>> kernel_quality("poor").diff_leakage > kernel_quality("fair").diff_leakage
    True
    """
    kernel = as_kernel(kernel)
    size, next_size = as_count(size), as_count(next_size)
    if next_size >= size:
        raise ArrnError(f"quality is that of smoothing down: next_size must be below {size}, got {next_size}")
    down, up = kernel.matrix(size, next_size).numpy(), kernel.matrix(next_size, size).numpy()
    ideal = WhittakerShannon(kernel.boundary)
    band = ideal.band(next_size)
    modes = ideal.modes(size) / np.sqrt(size)
    smoothed = up @ (down @ modes)
    gain = (modes * smoothed).sum(axis=0)
    smoothed[:, :band] -= modes[:, :band]
    return KernelQuality(kernel, size, next_size, band, gain, (smoothed**2).sum(axis=0))
