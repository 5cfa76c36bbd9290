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
    """The table and the pictures."""

    model: ARRN
    rows: list[DemoRow]
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
    torch.manual_seed(0)
    picture = sample_picture()
    pyramid = LaplacianPyramid(SIZES, "perfect")
    diffs, low = pyramid.decompose(picture)
    rebuilt = pyramid.reconstruct(diffs, low)
    reconstruction_error = float((rebuilt - resample(picture, SIZES[0])).abs().max())
    pictures = [
        plot_pyramid(out / "pyramid.png", picture, pyramid),
        plot_kernel_quality(out / "kernels.png"),
    ]
    model = arrn.create_model("arrn", sizes=SIZES, features=(16, 32, 64, 128), dropout=0.3)
    assert isinstance(model, ARRN)
    crops = torch.cat([picture[..., y : y + 288, x : x + 288] for y in (0, 112, 224) for x in (0, 75, 150, 224)])
    normalised = (crops - crops.mean()) / crops.std()
    awaken_norms(model, resample(normalised, SIZES[0]))
    rows = []
    for resolution in RESOLUTIONS:
        x = resample(normalised[:BATCH], resolution).contiguous(memory_format=torch.channels_last)
        adapted = model.at_resolution(resolution)
        level = model.level(resolution)
        with torch.no_grad():
            time = time_call(lambda adapted=adapted, x=x: adapted(x), repeats=10)  # type: ignore[misc]
        rows.append(
            DemoRow(
                resolution=resolution,
                grid=model.grids[level][0],
                levels=len(model.levels) - level + 1,
                parameters=count_parameters(adapted),
                multiply_adds=multiply_adds(adapted, (1, *x.shape[1:])),
                time=time,
                error=adaptation_discrepancy(model, x),
            )
        )
    return DemoResult(model, rows, reconstruction_error, pictures)
