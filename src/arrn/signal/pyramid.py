"""The Laplacian pyramid: a signal as the details lost at each step down a ladder, and what remains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from arrn.errors import ArrnError
from arrn.signal.grid import Size, as_ladder, as_sizes, check_signal, grid_of, level_at_least
from arrn.signal.kernels import KernelLike
from arrn.signal.kernels import kernel as as_kernel
from arrn.signal.resample import resample


class LaplacianPyramid:
    """Splits a signal over a ladder of resolutions, and puts it together again, exactly.

    With p_low the signal smoothed to a grid, D the smoothing to the next grid and U the
    interpolation back (equations laplacianBase to laplacianFilterBand of the paper)::

        p_low_n  = D p_low_{n-1}
        p_diff_n = p_low_{n-1} - U p_low_n

    Every kernel reconstructs exactly, since each difference is taken with the same U. (A periodic grid of even size
    loses its Nyquist bin, which is beyond its band, when a signal is taken to that grid.) With a perfect
    kernel a signal of lower resolution has zero differences above its own level (equation
    laplacianAdaptation), so `decompose` may start there: ``decompose(x, level=pyramid.level(x))``.

    Args:
        sizes: the grids, highest first; each a number or one number per axis.
        kernel: a kernel or its name.

    >>> pyramid = LaplacianPyramid((32, 16, 8), "perfect")
    >>> x = torch.rand(1, 3, 32, 32, dtype=torch.float64)
    >>> diffs, low = pyramid.decompose(x)
    >>> [tuple(diff.shape[2:]) for diff in diffs], tuple(low.shape[2:])
    ([(32, 32), (16, 16)], (8, 8))
    >>> torch.allclose(pyramid.reconstruct(diffs, low), x)
    True
    """

    def __init__(self, sizes: Iterable[Size], kernel: KernelLike = "perfect") -> None:
        self.sizes = as_sizes(sizes)
        self.kernel = as_kernel(kernel)
        # Tuples tell the number of axes now; plain numbers fit signals of any.
        as_ladder(self.sizes, next((len(size) for size in self.sizes if isinstance(size, Sequence)), 2))

    def __repr__(self) -> str:
        return f"LaplacianPyramid({self.sizes}, {self.kernel})"

    def level(self, x: torch.Tensor) -> int:
        """The lowest level whose grid holds all of `x`; with a perfect kernel, all differences above it are zero."""
        grid = check_signal(x)
        return level_at_least(as_ladder(self.sizes, len(grid)), grid)

    def decompose(self, x: torch.Tensor, level: int = 0) -> tuple[list[torch.Tensor], torch.Tensor]:
        """The differences from `level` downwards, highest first, and the lowest band.

        Args:
            x: shape (batch, channels, *space), any resolution; it is first taken to the grid of `level`.
            level: where to start; the differences above are skipped.
        """
        ladder = as_ladder(self.sizes, len(check_signal(x)))
        self._check_level(level)
        low = resample(x, ladder[level], self.kernel)
        diffs = []
        for upper, lower in zip(ladder[level:], ladder[level + 1 :], strict=False):
            lower_band = resample(low, lower, self.kernel)
            diffs.append(low - resample(lower_band, upper, self.kernel))
            low = lower_band
        return diffs, low

    def reconstruct(self, diffs: Sequence[torch.Tensor], low: torch.Tensor, level: int = 0) -> torch.Tensor:
        """The signal smoothed to the band of `level`, on that level's grid (equation laplacianDecompose).

        Args:
            diffs: the differences from `decompose`; leading differences that were skipped count as zero.
            low: the lowest band.
            level: the level up to which the signal is rebuilt; 0 is the top.
        """
        ladder = as_ladder(self.sizes, len(check_signal(low)))
        self._check_level(level)
        steps = len(ladder) - 1
        if len(diffs) > steps:
            raise ArrnError(f"a pyramid of {len(ladder)} sizes has {steps} differences, got {len(diffs)}")
        if grid_of(low) != ladder[-1]:
            raise ArrnError(f"the lowest band must be on the grid {ladder[-1]}, got {grid_of(low)}")
        skipped = steps - len(diffs)
        signal = low
        for n in range(steps - 1, level - 1, -1):
            signal = resample(signal, ladder[n], self.kernel)
            if n >= skipped:
                signal = signal + diffs[n - skipped]
        return signal

    def _check_level(self, level: int) -> None:
        if not 0 <= level < len(self.sizes):
            raise ArrnError(f"level must be from 0 to {len(self.sizes) - 1}, got {level}")
