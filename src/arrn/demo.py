"""The demonstration: one picture through one network at many resolutions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import torch
from PIL import Image

import arrn
from arrn.nn import ARRN, adaptation_discrepancy, awaken_norms, count_parameters, multiply_adds
from arrn.plots import plot_kernel_quality, plot_pyramid
from arrn.signal import LaplacianPyramid, resample
from arrn.timing import Timing, time_call

__all__ = ["DemoResult", "DemoRow", "run_demo"]

SIZES = (96, 48, 24, 12)
RESOLUTIONS = (96, 64, 48, 32, 24, 16, 12)
BATCH = 8


@dataclass(frozen=True)
class DemoRow:
    """What the network does with one input resolution."""

    resolution: int
    grid: int
    levels: int
    parameters: int
    multiply_adds: int
    time: Timing
    error: float


@dataclass(frozen=True)
class DemoResult:
    """The tables and the pictures."""

    model: ARRN
    rows: list[DemoRow]
    kernel_errors: dict[str, float]
    reconstruction_error: float
    pictures: list[Path]


def sample_picture() -> torch.Tensor:
    """A photograph that ships with matplotlib (Grace Hopper, public domain), shape (1, 3, 512, 512)."""
    with Image.open(matplotlib.get_data_path() + "/sample_data/grace_hopper.jpg") as image:
        pixels = np.asarray(image.convert("RGB"))[:512, :512]
    return torch.from_numpy(pixels.copy()).movedim(-1, 0)[None].float() / 255


def run_demo(out: Path) -> DemoResult:
    """Takes a picture through a network at several resolutions; writes pictures to `out`.

    The network is not trained; its batch norms are drawn at random and settled on the picture, so that
    every block matters and equality means something.
    """
    picture = sample_picture()
    pyramid = LaplacianPyramid(SIZES, "perfect")
    rebuilt = pyramid.reconstruct(*pyramid.decompose(picture))
    pictures = [
        plot_pyramid(out / "pyramid.png", picture, pyramid),
        plot_kernel_quality(out / "kernels.png"),
    ]
    corners = [(y, x) for y in (0, 112, 224) for x in (0, 75, 150, 224)]
    crops = torch.cat([picture[..., y : y + 288, x : x + 288] for y, x in corners])
    inputs = resample((crops - crops.mean()) / crops.std(), SIZES[0])[:BATCH]
    model = _network("perfect", inputs)
    halved = resample(inputs, SIZES[1])
    return DemoResult(
        model=model,
        rows=[_measure(model, resample(inputs, resolution), resolution) for resolution in RESOLUTIONS],
        kernel_errors={
            network.kernel.name: adaptation_discrepancy(network, halved)
            for network in (model, _network("fair", inputs), _network("poor", inputs))
        },
        reconstruction_error=float((rebuilt - resample(picture, SIZES[0])).abs().max()),
        pictures=pictures,
    )


def _network(kernel: str, inputs: torch.Tensor) -> ARRN:
    torch.manual_seed(0)
    model = arrn.create_model("arrn", sizes=SIZES, features=(16, 32, 64, 128), dropout=0.3, kernel=kernel)
    assert isinstance(model, ARRN)
    awaken_norms(model, inputs, steps=5)
    return model


@torch.no_grad()
def _measure(model: ARRN, x: torch.Tensor, resolution: int) -> DemoRow:
    x = x.contiguous(memory_format=torch.channels_last)
    adapted, level = model.at_resolution(resolution), model.level(resolution)
    return DemoRow(
        resolution=resolution,
        grid=model.grids[level][0],
        levels=len(model.levels) - level + 1,
        parameters=count_parameters(adapted),
        multiply_adds=multiply_adds(adapted, (1, *x.shape[1:])),
        time=time_call(lambda: adapted(x)),
        error=adaptation_discrepancy(model, x),
    )
