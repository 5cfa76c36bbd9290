"""A Laplacian pyramid as a picture: what each level takes out of an image, and what remains."""

from __future__ import annotations

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from arrn.figures.style import Drawing, styled
from arrn.figures.subject import Subject
from arrn.signal import LaplacianPyramid

_LEVELS = 4


def pyramid_figure(subject: Subject) -> Drawing:
    """The image halved time and again."""
    height, width = subject.image.shape[2:]
    sizes = [(height >> level, width >> level) for level in range(_LEVELS)]
    ladder = [size for size in sizes if min(size) >= 2]
    return Drawing("pyramid", draw_pyramid(subject.image, LaplacianPyramid(ladder)))


def draw_pyramid(image: torch.Tensor, pyramid: LaplacianPyramid) -> Figure:
    """Draws the low bands (top) and the differences (bottom) of an image with values in [0, 1].

    Args:
        image: shape (1, 3, height, width).
        pyramid: its kernel and sizes.
    """
    diffs, low = pyramid.decompose(image)
    bands = [pyramid.reconstruct(diffs, low, level) for level in range(len(pyramid.sizes))]
    with styled():
        figure = Figure(figsize=(2.6 * len(bands), 5.6), layout="constrained")
        axes = figure.subplots(2, len(bands), squeeze=False)
        for n, band in enumerate(bands):
            show_image(axes[0, n], band, f"low band {n}: {spell_size(band)}", image)
            if n < len(diffs):
                show_image(axes[1, n], 0.5 + 2 * diffs[n], f"difference {n + 1}: {spell_size(diffs[n])}", image)
            else:
                axes[1, n].axis("off")
                axes[1, n].text(
                    0.5, 0.5, "the differences and\nthe last low band\nsum to the image", ha="center", va="center"
                )
        figure.suptitle(f"Laplacian pyramid, {pyramid.kernel.name} kernel (differences x2 around grey)", fontsize=11)
        return figure


def spell_size(signal: torch.Tensor) -> str:
    """Its height and width, such as 32x32."""
    return "x".join(str(n) for n in signal.shape[2:])


def show_image(axes: Axes, image: torch.Tensor, title: str, original: torch.Tensor) -> None:
    """Shows a signal of shape (1, 3, height, width) and values in [0, 1], as large as the original image."""
    # All signals cover the same domain, though a grid's proportions are rounded ones.
    height, width = original.shape[2:]
    pixels = image[0].clamp(0, 1).movedim(0, -1).numpy()
    axes.imshow(pixels, extent=(0, 1, 1, 0), aspect=height / width, interpolation="nearest")
    axes.set_title(title)
    axes.axis("off")
