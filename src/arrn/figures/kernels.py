"""Pictures of smoothing kernels: their responses, and the bandwidth of a signal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from arrn.figures.style import COLOURS, LINE_STYLES, Drawing, save_figure, styled
from arrn.figures.subject import Subject
from arrn.signal import LaplacianPyramid, kernel_quality, resample
from arrn.signal.kernels import KernelLike
from arrn.signal.quality import decibel

_FLOOR = -120  # decibels; what lies below is drawn there
_LINE = 32  # samples of the line whose bands are shown; more could not be told apart
_FINE = 15  # points per sample with which a continuous signal is drawn; odd, so that the middle one is the sample
_HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\")


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
            # The smaller grid samples this one cosine at its zeros: a gap in the curve, not a property of the kernel.
            unseen = np.arange(len(quality.gain)) == next_size
            style = {"color": COLOURS[n % len(COLOURS)], "linestyle": LINE_STYLES[n % len(LINE_STYLES)], "linewidth": 2}
            frequency = np.arange(len(quality.gain)) / len(quality.gain)
            left.plot(frequency, np.where(unseen, np.nan, quality.gain), **style)
            leak = 10 * np.log10(np.maximum(quality.leak, 10 ** (_FLOOR / 10)))
            right.plot(frequency, np.where(unseen, np.nan, leak), **style)
            labels.append(
                f"{quality.kernel.name}: passband error {quality.passband_error:.1g}, "
                f"diff leakage {decibel(quality.diff_leakage):.0f} dB"
            )
        for axes in (left, right):
            axes.axvline(next_size / size, color="0.5", linewidth=1)
            axes.set_xlabel("frequency, as a share of the larger grid's band")
        left.set_ylabel("gain of smoothing U D")
        left.set_title(f"Ideal: 1 up to {next_size}/{size}, 0 beyond")
        right.set_ylabel(f"misplaced energy (dB, from {_FLOOR})")
        right.set_title("Left of the line: what diff leaks; right: what passes")
        right.set_ylim(_FLOOR - 5, 5)
        figure.legend(left.lines[: len(labels)], labels, loc="outside lower center", ncols=2)
        return save_figure(figure, Path(path))


def bandwidth_figure(subject: Subject) -> Drawing:
    """The image's middle line, on a ladder of three grids."""
    line = subject.image[:, :, subject.image.shape[2] // 2].double().mean(dim=1, keepdim=True)
    size = min(_LINE, line.shape[-1])
    sizes = (size, size // 2, size // 4)
    return Drawing("bandwidth", draw_bandwidth(resample(line, size), sizes))


def draw_bandwidth(signal: torch.Tensor, sizes: Sequence[int]) -> Figure:
    """Left, each band of the ladder sampled on each of its grids; right, the frequencies that each level holds.

    Args:
        signal: shape (1, 1, N), as real signals are: of every frequency.
        sizes: the ladder, highest first, N or less.
    """
    with styled():
        figure = Figure(figsize=(13.0, 6.2), layout="constrained")
        halves = figure.subfigures(1, 2, squeeze=False, width_ratios=[1.35, 1])[0]
        _draw_grids(halves[0], signal, sizes)
        _draw_spectra(halves[1], signal, sizes)
        return figure


def _draw_grids(figure: SubFigure, signal: torch.Tensor, sizes: Sequence[int]) -> None:
    """The paper's picture: resolutions from left to right, bandwidths from top to bottom."""
    grid = figure.subplots(len(sizes), len(sizes), squeeze=False, sharex=True, sharey=True)
    for row, band in enumerate(sizes):
        smooth = resample(signal, band)
        for column, size in enumerate(sizes):
            axes: Axes = grid[row, column]
            _draw_samples(axes, smooth, size, COLOURS[row % len(COLOURS)])
            axes.set(xticks=[], yticks=[])
            if column == 0:
                axes.set_ylabel(f"$S_{row + 1}$: {band} frequencies")
            if row == 0:
                axes.set_title(f"$X_{column + 1}$: {size} samples")
    figure.suptitle("A grid holds the signals of its own band and of lower ones", fontsize=11)


def _draw_samples(axes: Axes, smooth: torch.Tensor, size: int, colour: str) -> None:
    """A signal of `smooth`'s band, its samples on a grid, and what these give where they are too few."""
    band = smooth.shape[-1]
    fine = _FINE * band
    x = (np.arange(fine) + 0.5) / fine
    held = size >= band
    curve = resample(smooth, fine)
    # Sampling without smoothing first: the middle points of the continuous signal's cells.
    places = (np.arange(size) + 0.5) / size
    samples = resample(smooth, _FINE * size)[..., _FINE // 2 :: _FINE]
    axes.plot(x, curve[0, 0], color=colour if held else "0.45", linewidth=1.4, linestyle="-" if held else ":")
    if not held:
        axes.set_facecolor("0.86")
        axes.plot(x, resample(samples, fine)[0, 0], color="black", linewidth=1.2)
        axes.set_xlabel("another signal comes back", fontsize=8.5)
    axes.plot(places, samples[0, 0], "o", color=colour if held else "black", markersize=3)


def _draw_spectra(figure: SubFigure, signal: torch.Tensor, sizes: Sequence[int]) -> None:
    """What each difference of the pyramid holds, for a perfect and for a poor kernel, frequency by frequency."""
    panels = figure.subplots(2, 1, sharex=True, sharey=True)
    top = sizes[0]
    for axes, kernel in zip(panels, ("perfect", "poor"), strict=True):
        diffs, low = LaplacianPyramid(sizes, kernel).decompose(signal)
        parts = [resample(part, top, kernel) for part in (*diffs, low)]
        names = [f"difference {n + 1}, on {size}" for n, size in enumerate(sizes[:-1])] + [f"rest, on {sizes[-1]}"]
        frequency, width = np.arange(top), 0.8 / len(parts)
        for n, (part, name) in enumerate(zip(parts, names, strict=True)):
            axes.bar(
                frequency + (n - (len(parts) - 1) / 2) * width,
                cosine_magnitudes(part),
                width,
                color=COLOURS[n % len(COLOURS)],
                hatch=_HATCHES[n % len(_HATCHES)],
                edgecolor="white",
                linewidth=0,
                label=name,
            )
        for size in sizes[1:]:
            axes.axvline(size - 0.5, color="0.3", linewidth=1, linestyle="--")
        axes.set_ylabel("magnitude")
        axes.set_yscale("symlog", linthresh=1e-3)
        axes.set_title(f"{kernel} kernel")
        axes.grid(visible=False, axis="x")
    panels[-1].set_xlabel("frequency k of cos(πkx); dashed: where each grid's band ends")
    panels[-1].set_xticks([0, *(size for size in reversed(sizes))])
    panels[-1].legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=len(sizes))
    figure.suptitle("What each level of the ladder holds", fontsize=11)


def cosine_magnitudes(signal: torch.Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The magnitude of each frequency cos(pi k x), k < N, in a signal of N samples, shape (1, 1, N).

    >>> x = (torch.arange(8) + 0.5) / 8
    >>> wave = 1 + 3 * torch.cos(2 * torch.pi * x)
    >>> [round(float(magnitude), 3) for magnitude in cosine_magnitudes(wave.reshape(1, 1, -1))]
    [1.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    samples = signal[0, 0].double().numpy()
    n = len(samples)
    waves = np.cos(np.pi * np.outer(np.arange(n), (np.arange(n) + 0.5) / n))
    weights = np.where(np.arange(n) == 0, 1.0, 2.0) / n
    magnitudes: np.ndarray[Any, np.dtype[np.float64]] = np.abs(weights * (waves @ samples))
    return magnitudes
