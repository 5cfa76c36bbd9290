"""What pictures are drawn of: an image, and a network that it runs through."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from arrn.data import Normalisation, decode, open_dataset
from arrn.errors import ArrnError
from arrn.figures.features import draw_features
from arrn.figures.kernels import draw_bandwidth
from arrn.figures.pyramid import draw_pyramid
from arrn.figures.style import Drawing
from arrn.models import create_model
from arrn.nn import ARRN
from arrn.nn.config import config_of
from arrn.runs import load_network
from arrn.signal import LaplacianPyramid, resample

LARGEST, SMALLEST = 192, 8  # along the longer and the shorter side, in pixels


@dataclass(frozen=True)
class Subject:
    """An image and a network.

    Attributes:
        image: values in [0, 1], shape (1, 3, height, width).
        network: in evaluation mode, on the CPU.
        normalisation: from values in 0 to 255 to what the network sees.
        title: tells which network it is.
    """

    image: torch.Tensor
    network: ARRN
    normalisation: Normalisation
    title: str


def open_subject(image: Path | None = None, network: Path | None = None) -> Subject:
    """The image of a file and the network of a folder.

    Args:
        image: by default the first test image of the shipped sample. Large ones are lowered first.
        network: by default an untrained `arrn_small`, always the same.
    """
    if network is None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = create_model("arrn_small").eval()
        statistics = open_dataset("sample")
        assert statistics.mean is not None
        assert statistics.std is not None
        normalisation, title = Normalisation(statistics.mean, statistics.std), "an untrained arrn_small (seed 0)"
    else:
        model, _, normalisation = load_network(network, torch.device("cpu"))
        name, folder = config_of(model)["name"], network.resolve().name
        title = name if folder == name else f"{name} ({folder})"
    if not isinstance(model, ARRN):
        raise ArrnError(f"the picture of features needs an ARRN, but {network} holds a {type(model).__name__}")
    if (model.ndim, model.in_channels) != (2, 3):
        raise ArrnError(
            f"the picture of features needs a network for images of 3 channels, but {network} takes "
            f"{model.in_channels} channels over {model.ndim} axes"
        )
    return Subject(_read_image(image), model.eval(), normalisation, title)


def _read_image(path: Path | None) -> torch.Tensor:
    if path is None:
        test = open_dataset("sample").test
        assert test is not None
        pixels = test.read(0)
    else:
        pixels = decode(path, str(path))
    height, width = pixels.shape[1:]
    if min(height, width) < SMALLEST:
        raise ArrnError(f"an image of at least {SMALLEST}x{SMALLEST} is needed, got {height}x{width}")
    image = pixels[None].float() / 255
    factor = min(1.0, LARGEST / max(height, width))
    if factor == 1:
        return image
    size = (max(SMALLEST, round(factor * height)), max(SMALLEST, round(factor * width)))
    return resample(image, size).clamp(0, 1)


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
