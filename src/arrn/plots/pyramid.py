"""A Laplacian pyramid as a picture: what each level takes out of an image, and what remains."""

from __future__ import annotations

from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from arrn.plots.style import save_figure, styled
from arrn.signal import LaplacianPyramid

__all__ = ["plot_pyramid"]


def plot_pyramid(path: str | Path, image: torch.Tensor, pyramid: LaplacianPyramid) -> Path:
    """Draws the low bands (top) and the differences (bottom) of an image with values in [0, 1].

    Args:
        path: the file to write.
        image: shape (1, 3, height, width).
        pyramid: its kernel and sizes.
    """
    diffs, low = pyramid.decompose(image)
    bands = [pyramid.reconstruct(diffs, low, level) for level in range(len(pyramid.sizes))]
    with styled():
        figure = Figure(figsize=(2.6 * len(bands), 5.6), layout="constrained")
        axes = figure.subplots(2, len(bands), squeeze=False)
        for n, band in enumerate(bands):
            _show(axes[0, n], band, f"low band {n}: {_size(band)}")
            if n < len(diffs):
                _show(axes[1, n], 0.5 + 2 * diffs[n], f"difference {n + 1}: {_size(diffs[n])}")
            else:
                axes[1, n].axis("off")
                axes[1, n].text(
                    0.5, 0.5, "the differences and\nthe last low band\nsum to the image", ha="center", va="center"
                )
        figure.suptitle(f"Laplacian pyramid, {pyramid.kernel.name} kernel (differences x2 around grey)")
        return save_figure(figure, Path(path))


def _size(signal: torch.Tensor) -> str:
    return "x".join(str(n) for n in signal.shape[2:])


def _show(axes: Axes, image: torch.Tensor, title: str) -> None:
    # All images cover the same domain, so they are drawn at the same extent.
    axes.imshow(image[0].clamp(0, 1).movedim(0, -1).numpy(), extent=(0, 1, 1, 0), interpolation="nearest")
    axes.set_title(title)
    axes.axis("off")
