"""A kernel's quality as a picture: the gain and the leaked energy of every frequency."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from arrn.plots.style import COLOURS, LINE_STYLES, save_figure, styled
from arrn.signal import kernel_quality
from arrn.signal.kernels import KernelLike
from arrn.signal.quality import decibel

__all__ = ["plot_kernel_quality"]

FLOOR = -120  # decibels; what lies below is drawn there


def plot_kernel_quality(
    path: str | Path,
    kernels: Sequence[KernelLike] = ("perfect", "fair", "poor"),
    size: int = 64,
    next_size: int = 32,
) -> Path:
    """Draws gain and leakage over frequency for each kernel, smoothing from `size` to `next_size`."""
    with styled():
        figure = Figure(figsize=(9.5, 4.0), layout="constrained")
        left, right = figure.subplots(1, 2)
        labels = []
        for n, kernel in enumerate(kernels):
            quality = kernel_quality(kernel, size, next_size)
            style = {"color": COLOURS[n % len(COLOURS)], "linestyle": LINE_STYLES[n % len(LINE_STYLES)], "linewidth": 2}
            frequency = np.arange(len(quality.gain)) / len(quality.gain)
            left.plot(frequency, quality.gain, **style)
            leak = 10 * np.log10(np.maximum(quality.leak, 10 ** (FLOOR / 10)))
            right.plot(frequency, leak, **style)
            labels.append(
                f"{quality.kernel.name}: passband error {quality.passband_error:.1g}, "
                f"diff leakage {decibel(quality.diff_leakage):.0f} dB"
            )
        for axes in (left, right):
            axes.axvline(next_size / size, color="0.5", linewidth=1)
            axes.set_xlabel("frequency, as a share of the larger grid's band")
        left.set_ylabel("gain of smoothing U D")
        left.set_title(f"Ideal: 1 up to {next_size}/{size}, 0 beyond")
        right.set_ylabel(f"misplaced energy (dB, from {FLOOR})")
        right.set_title("Left of the line: what diff leaks; right: what passes")
        right.set_ylim(FLOOR - 5, 5)
        figure.legend(left.lines[: len(labels)], labels, loc="outside lower center", ncols=2)
        return save_figure(figure, Path(path))
