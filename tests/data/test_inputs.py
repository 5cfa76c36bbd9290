"""One file for a trained network: what its axes and channels make of it."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from arrn.data import BadSample, read_input


def save_array(path: Path, array: np.ndarray) -> Path:
    np.save(path, array)
    return path


def test_a_network_of_one_channel_sees_grey_as_pillow_does(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    image.save(tmp_path / "a.png")
    grey = read_input(tmp_path / "a.png", ndim=2, channels=1)
    np.testing.assert_array_equal(grey.numpy()[0], np.asarray(image.convert("L")))
    colour = read_input(tmp_path / "a.png", ndim=2, channels=3)
    np.testing.assert_array_equal(colour.permute(1, 2, 0).numpy(), pixels)
    image.convert("L").save(tmp_path / "grey.png")
    assert torch.equal(read_input(tmp_path / "grey.png", ndim=2, channels=1), grey)


@pytest.mark.parametrize("channels", [0, 1, 3])
def test_a_volume_is_read_with_and_without_channels(tmp_path: Path, channels: int) -> None:
    shape = (4, 5, 6, channels) if channels else (4, 5, 6)
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    volume = read_input(save_array(tmp_path / "v.npy", array), ndim=3, channels=max(channels, 1))
    assert volume.dtype == torch.uint8
    np.testing.assert_array_equal(volume.numpy(), np.moveaxis(array, -1, 0) if channels else array[None])


@pytest.mark.parametrize(
    ("array", "channels", "problem"),
    [
        (np.zeros((4, 4, 4)), 1, "should hold uint8 of shape .*; got float64"),
        (np.zeros((4, 4), np.uint8), 1, r"got uint8 of shape \(4, 4\)"),
        (np.zeros((4, 4, 4, 2), np.uint8), 1, r"got uint8 of shape \(4, 4, 4, 2\)"),
        (np.zeros((0, 4, 4), np.uint8), 1, "got uint8 of shape"),
        (np.zeros((4, 4, 4, 3), np.uint8), 1, "it has 3 channels, and the network takes 1"),
        (np.array([{}], dtype=object), 1, "not an npy file, or a truncated one"),  # nothing is unpickled
    ],
)
def test_what_is_no_volume_is_told(tmp_path: Path, array: np.ndarray, channels: int, problem: str) -> None:
    file = save_array(tmp_path / "v.npy", array)
    with pytest.raises(BadSample, match=problem):
        read_input(file, ndim=3, channels=channels)


def test_truncated_and_missing_volumes_are_told(tmp_path: Path) -> None:
    whole = io.BytesIO()
    np.save(whole, np.zeros((4, 4, 4), np.uint8))
    (tmp_path / "v.npy").write_bytes(whole.getvalue()[:-5])
    with pytest.raises(BadSample, match=r"v\.npy: not an npy file, or a truncated one"):
        read_input(tmp_path / "v.npy", ndim=3, channels=1)
    with pytest.raises(BadSample, match=r"gone\.npy: cannot be read: No such file"):
        read_input(tmp_path / "gone.npy", ndim=3, channels=1)
