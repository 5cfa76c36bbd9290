"""What pictures are drawn of: an image, and a network that it runs through."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from arrn.data import Normalisation, decode, open_dataset
from arrn.errors import ArrnError
from arrn.models import create_model
from arrn.nn import ARRN
from arrn.nn.network import config_of
from arrn.runs import load_network
from arrn.signal import resample

_LARGEST, _SMALLEST = 192, 8  # along the longer and the shorter side, in pixels


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
    if min(height, width) < _SMALLEST:
        raise ArrnError(f"an image of at least {_SMALLEST}x{_SMALLEST} is needed, got {height}x{width}")
    image = pixels[None].float() / 255
    factor = min(1.0, _LARGEST / max(height, width))
    if factor == 1:
        return image
    size = (max(_SMALLEST, round(factor * height)), max(_SMALLEST, round(factor * width)))
    return resample(image, size).clamp(0, 1)
