"""Images of many sizes, each brought to its grid."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import arrn
from arrn.data import BadSample, ImageFolder, Placement
from arrn.nn.network import entry_grid
from arrn.signal import kernel, resample
from pictures import picture, write_folder

sizes = st.tuples(st.integers(1, 20), st.integers(1, 20))


@given(sizes, sizes, st.sampled_from(["perfect", "fair", "poor"]), st.integers(0, 100))
def test_it_resamples_in_float_and_rounds_to_the_nearest_level(
    size: tuple[int, int], target: tuple[int, int], name: str, seed: int
) -> None:
    image = torch.randint(0, 256, (3, *size), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    placed = Placement({size: target}, kernel(name))(image)
    exact = resample(image[None].double(), target, name)[0]
    assert placed.dtype == torch.uint8
    assert placed.shape == (3, *target)
    # Half a level of rounding, and overshoot at edges is cut off rather than wrapped around.
    assert float((placed - exact.clamp(0, 255)).abs().max()) <= 0.5 + 1e-3


@given(sizes)
def test_an_image_already_there_is_left_as_it_is(size: tuple[int, int]) -> None:
    image = torch.randint(0, 256, (3, *size), dtype=torch.uint8)
    assert Placement.unchanged([size])(image) is image


def test_each_image_goes_to_the_grid_of_its_level() -> None:
    model = arrn.create_model("arrn", sizes=(32, 16, 8), features=(4, 4, 4), depth=1)
    found = {(5, 5): (8, 8), (8, 8): (8, 8), (9, 4): (16, 16), (16, 17): (32, 32), (40, 64): (32, 32)}
    placement = Placement.by(lambda size: entry_grid(model, size), found, kernel("perfect"))
    assert placement.targets == found
    cheap = Placement.by(lambda size: entry_grid(model, size, "cheap"), found, kernel("perfect"))
    assert cheap.targets == {
        (5, 5): (8, 8),
        (8, 8): (8, 8),
        (9, 4): (8, 8),
        (16, 17): (16, 16),
        (40, 64): (32, 32),
    }


def test_it_travels_to_worker_processes() -> None:
    placement = Placement({(4, 6): (2, 3)}, kernel("fair"))
    image = torch.randint(0, 256, (3, 4, 6), dtype=torch.uint8)
    assert torch.equal(pickle.loads(pickle.dumps(placement))(image), placement(image))


@pytest.mark.parametrize("other", [(9, 9), (6, 6)])
def test_an_image_that_changed_since_it_was_looked_at_is_named(tmp_path: Path, other: tuple[int, int]) -> None:
    write_folder(tmp_path, {"a": [(4, 4), (6, 6)]})
    source = ImageFolder(tmp_path, "train")
    placement = Placement({(4, 4): (4, 4), (6, 6): (8, 8)}, kernel("perfect"))
    assert placement.read(source, 0, (4, 4)).shape == (3, 4, 4)
    Image.fromarray(np.asarray(picture(*other))).save(tmp_path / "a" / "0.png")
    with pytest.raises(BadSample, match=rf"0\.png: its size is now {other[0]}.*: the file was changed"):
        placement.read(source, 0, (4, 4))
