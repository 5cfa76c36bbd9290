"""The features inside an ARRN, level by level, as colours (the paper's picture of its residuals)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from matplotlib.figure import Figure

from arrn.plots.principal_colours import principal_colours
from arrn.plots.pyramid import show_image, spell_size
from arrn.plots.style import styled
from arrn.signal import LaplacianPyramid
from arrn.signal.grid import grid_of
from arrn.signal.kernels import KernelLike

__all__ = ["draw_features"]


def draw_features(image: torch.Tensor, levels: Sequence[torch.Tensor], kernel: KernelLike, title: str) -> Figure:
    """Draws what each level receives (top), and the difference that its block is given (bottom).

    Args:
        image: shape (1, 3, height, width), values in [0, 1].
        levels: what `ARRN.forward_levels` gives for it, of one image.
        kernel: the network's.
        title: tells which network it is.
    """
    names = [f"into level {n + 1}" for n in range(len(levels) - 2)] + ["into the base", "out of the base"]
    grids = [grid_of(features) for features in levels]
    with styled():
        figure = Figure(figsize=(2.5 * (1 + len(levels)), 5.8), layout="constrained")
        axes = figure.subplots(2, 1 + len(levels), squeeze=False)
        for each in axes.flat:
            each.axis("off")
        show_image(axes[0, 0], image, f"input:\n{spell_size(image)}", image)
        axes[1, 0].text(
            0.5, 0.5, "colours: the three\nprincipal components\nof each level's features", ha="center", va="center"
        )
        for n, (name, features) in enumerate(zip(names, levels, strict=True), start=1):
            colours = principal_colours(features)
            caption = f"{name}:\n{spell_size(features)}, {features.shape[1]} features"
            show_image(axes[0, n], colours(features), caption, image)
            if n <= len(levels) - 2:
                (difference,), _ = LaplacianPyramid(grids[n - 1 : n + 1], kernel).decompose(features)
                caption = f"difference {n}, for\nthe block of level {n}"
                show_image(axes[1, n], colours(difference, centred=False), caption, image)
        figure.suptitle(title, fontsize=11)
        return figure
