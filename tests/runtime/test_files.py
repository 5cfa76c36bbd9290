"""One file for a trained network: what its axes and channels make of it."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from arrn.runtime import BadSample, Reader
from arrn.signal import resample
from pictures import picture


def read_input(path: Path, ndim: int, channels: int, **options: object) -> torch.Tensor:
    return torch.from_numpy(Reader(ndim, channels, **options).read(path).samples)


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
    with pytest.raises(BadSample, match=r"gone\.npy: no such file"):
        read_input(tmp_path / "gone.npy", ndim=3, channels=1)


def test_a_volume_in_fortrans_order_is_read(tmp_path: Path) -> None:
    array = np.asfortranarray(np.random.default_rng(0).integers(0, 256, (4, 5, 6), dtype=np.uint8))
    volume = read_input(save_array(tmp_path / "v.npy", array), ndim=3, channels=1)
    np.testing.assert_array_equal(volume.numpy()[0], array)


def claiming(shape: object, data: bytes = bytes(64)) -> bytes:
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}}}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (claiming((401, 400, 400)), "its size, 401x400x400, is 64,160,000 voxels, more than the limit of 64,000,000"),
        (claiming((4, 4, 70_000)), "its size, 4x4x70000, has a side of more than 65,535"),
        (
            claiming((4, 4, 5)),
            "a truncated one: its header announces 80 bytes, but the file holds 64",
        ),
        (claiming((4, 4, 2)), "its header announces 32 bytes, but the file holds more"),
        (claiming((4, -4, -4)), r"shape \(4, -4, -4\) of uint8 is impossible"),
        (claiming((10**30, 4, 4)), "is 16,000,.* voxels, more than"),
        (claiming("((((" * 20), "not an npy file, or a truncated one: "),
        (b"\x93NUMPY", "not an npy file, or a truncated one: "),
        (b"", "not an npy file, or a truncated one: "),
    ],
)
def test_what_a_volume_claims_is_bounded(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "v.npy").write_bytes(content)
    with pytest.raises(BadSample, match=rf"v\.npy: .*{problem}") as caught:
        read_input(tmp_path / "v.npy", ndim=3, channels=1)
    assert "\n" not in str(caught.value)


def test_a_caller_may_take_larger_volumes(tmp_path: Path) -> None:
    (tmp_path / "v.npy").write_bytes(claiming((4, 4, 4)))
    assert read_input(tmp_path / "v.npy", 3, 1, max_pixels=64).shape == (1, 4, 4, 4)
    with pytest.raises(BadSample, match="is 64 voxels, more than the limit of 63"):
        read_input(tmp_path / "v.npy", 3, 1, max_pixels=63)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "v.npy")
    with pytest.raises(BadSample, match=r"v\.npy: cannot be read: it is a FIFO"):
        read_input(tmp_path / "v.npy", ndim=3, channels=1)


def test_a_large_image_is_read_at_a_part_of_its_resolution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a network sees of it, on its own grid, is what it sees of the whole image, to a grey level or so."""
    monkeypatch.setattr("arrn.runtime.pictures._READ_WHOLE", 10_000)
    Image.fromarray(picture(300, 420)).save(tmp_path / "a.png")
    whole, part = (read_input(tmp_path / "a.png", 2, 3, top=top) for top in (None, (8, 8)))
    assert part.shape == (3, 75, 105)
    seen, expected = (resample(pixels[None].float(), (8, 8)) for pixels in (part, whole))
    assert float((seen - expected).abs().max()) < 1
