"""The pictures that need no results: a pyramid, the features of a network, resolution and bandwidth."""

from __future__ import annotations

import torch

from arrn.figures.drawing import Drawing
from arrn.figures.subject import Subject
from arrn.plots import draw_bandwidth, draw_features, draw_pyramid
from arrn.signal import LaplacianPyramid, resample

__all__ = ["picture_bandwidth", "picture_features", "picture_pyramid"]

LEVELS = 4
LINE = 32  # samples of the line whose bands are shown; more could not be told apart


def picture_pyramid(subject: Subject) -> Drawing:
    """The image halved time and again."""
    height, width = subject.image.shape[2:]
    sizes = [(height >> level, width >> level) for level in range(LEVELS)]
    ladder = [size for size in sizes if min(size) >= 2]
    return Drawing("pyramid", draw_pyramid(subject.image, LaplacianPyramid(ladder)))


def picture_features(subject: Subject) -> Drawing:
    """The image on its way through the network."""
    network = subject.network
    with torch.no_grad():
        levels = network.forward_levels(subject.normalisation(255 * subject.image))
    title = f"Features of an image in {subject.title}"
    return Drawing("features", draw_features(subject.image, levels, network.kernel, title))


def picture_bandwidth(subject: Subject) -> Drawing:
    """The image's middle line, on a ladder of three grids."""
    line = subject.image[:, :, subject.image.shape[2] // 2].double().mean(dim=1, keepdim=True)
    size = min(LINE, line.shape[-1])
    sizes = (size, size // 2, size // 4)
    return Drawing("bandwidth", draw_bandwidth(resample(line, size), sizes))
