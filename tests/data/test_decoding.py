"""Encoded images to tensors, against Pillow and torchvision and over damaged files."""

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps
from torchvision.io import ImageReadMode, decode_image

from arrn.data import BadSample, decode, header_size
from arrn.data.decoding import PICTURES
from pictures import encoded, picture, to_tensor

PIXELS = picture(7, 11)
KINDS = ["PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM"]


NO_SUCH_MODE = {("JPEG", "P"), ("WEBP", "1"), ("PPM", "P")}


@pytest.mark.parametrize(
    ("kind", "mode"),
    [(kind, mode) for kind in KINDS for mode in ("RGB", "L", "1", "P") if (kind, mode) not in NO_SUCH_MODE],
)
def test_every_format_reads_as_pillow_shows_it(kind: str, mode: str) -> None:
    data = encoded(PIXELS, kind, mode)
    assert torch.equal(decode(data, "x"), to_tensor(Image.open(io.BytesIO(data)).convert("RGB")))
    assert header_size(data, "x") == (7, 11)


@pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning")  # the reference will move, not the format
@pytest.mark.parametrize(("kind", "tolerance"), [("PNG", 0), ("JPEG", 2), ("WEBP", 0)])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_torchvision_decodes_the_same(kind: str, mode: str, tolerance: int) -> None:
    data = encoded(picture(40, 25), kind, mode)
    reference = decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB)
    image = decode(data, "x")
    assert image.dtype == torch.uint8
    assert image.is_contiguous()
    assert (image.int() - reference.int()).abs().max() <= tolerance


def test_an_image_goes_where_there_is_room_for_it() -> None:
    data, batch = encoded(PIXELS, "PNG"), torch.zeros((2, 3, 7, 11), dtype=torch.uint8)
    room = batch[1]
    assert PICTURES.decode(data, "x", room) is room
    assert torch.equal(batch[1], decode(data, "x"))
    other = torch.zeros((3, 11, 7), dtype=torch.uint8)
    assert torch.equal(PICTURES.decode(data, "x", other), batch[1])
    assert not other.any()
    assert not batch[0].any()


def test_cmyk_is_turned_into_rgb() -> None:
    data = encoded(PIXELS, "JPEG", "CMYK", quality=100)
    image = decode(data, "x")
    assert torch.equal(image, to_tensor(Image.open(io.BytesIO(data)).convert("RGB")))
    assert (image.int() - torch.from_numpy(PIXELS).permute(2, 0, 1).int()).abs().float().mean() < 4


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_what_is_transparent_shows_white(kind: str) -> None:
    pixels = np.zeros((2, 3, 4), np.uint8)
    pixels[:, 0] = (10, 20, 30, 255)
    pixels[:, 1] = (10, 20, 30, 0)
    pixels[:, 2] = (0, 0, 0, 128)
    options = {"lossless": True} if kind == "WEBP" else {}
    image = decode(encoded(pixels, kind, "RGBA", **options), "x")
    assert image[:, 0].T.tolist() == [[10, 20, 30], [255, 255, 255], [127, 127, 127]]


def test_a_transparent_palette_colour_shows_white() -> None:
    image = Image.fromarray(np.array([[0, 1]], np.uint8), "P")
    image.putpalette([1, 2, 3, 4, 5, 6])
    for kind in ("PNG", "GIF"):
        file = io.BytesIO()
        image.save(file, kind, transparency=1)
        assert decode(file.getvalue(), "x")[:, 0].T.tolist() == [[1, 2, 3], [255, 255, 255]]


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_not_clipped(kind: str) -> None:
    levels = np.array([[0, 127, 128, 257, 40000, 65535]], np.uint16)
    file = io.BytesIO()
    Image.fromarray(levels).save(file, kind)
    expected = [0, 0, 0, 1, round(40000 / 257), 255]
    assert decode(file.getvalue(), "x")[0, 0].tolist() == expected
    assert header_size(file.getvalue(), "x") == (1, 6)


def png_of_16_bit_rgb(levels: list[int]) -> bytes:
    """Pillow writes no such files."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = b"\0" + b"".join(struct.pack(">3H", level, level, level) for level in levels)
    header = struct.pack(">IIBBBBB", len(levels), 1, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(row)) + chunk(b"IEND", b"")


def test_sixteen_bit_colour_is_scaled_too() -> None:
    image = decode(png_of_16_bit_rgb([0, 40000, 65535]), "x")
    assert (image[:, 0] - torch.tensor([0, 156, 255])).abs().max() <= 1


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_is_applied(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(PIXELS, kind, exif=exif)
    reference = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    image = decode(data, "x")
    assert torch.equal(image, to_tensor(reference))
    assert header_size(data, "x") == tuple(image.shape[1:]) == ((7, 11) if orientation < 5 else (11, 7))


def test_an_animation_gives_its_first_frame() -> None:
    frames = [Image.fromarray(picture(6, 5, seed)).quantize(8) for seed in range(3)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    assert torch.equal(decode(file.getvalue(), "x"), to_tensor(frames[0].convert("RGB")))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (b"hello, world", "not an image"),
        (b"RIFF\x24\x00\x00\x00WAVEfmt ", "not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),  # Pillow would start Ghostscript
        (encoded(PIXELS)[:-60], "cannot be decoded"),
        (encoded(picture(64, 64), "JPEG")[:-200], "cannot be decoded"),
    ],
)
def test_what_is_no_image_is_named(data: bytes, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.png"
    file.write_bytes(data)
    for source in (data, file):
        with pytest.raises(BadSample, match=f"^the place: .*{reason}") as caught:
            decode(source, "the place")
        assert caught.value.where == "the place"


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    for read in (decode, header_size):
        with pytest.raises(BadSample, match="no such file"):
            read(tmp_path / "none.png", "x")
        (tmp_path / "folder.png").mkdir(exist_ok=True)
        with pytest.raises(BadSample, match="cannot be read: it is a folder"):
            read(tmp_path / "folder.png", "x")


def test_floating_point_pixels_are_refused() -> None:
    for levels, reason in (
        (np.ones((2, 2), np.float32), "floating-point"),
        (np.full((2, 2), 70000, np.int32), "32-bit"),
    ):
        file = io.BytesIO()
        Image.fromarray(levels).save(file, "TIFF")
        with pytest.raises(BadSample, match=reason):
            decode(file.getvalue(), "x")


def png_that_says(height: int, width: int) -> bytes:
    data = bytearray(encoded(PIXELS))
    data[16:24] = struct.pack(">II", width, height)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    return bytes(data)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    ("height", "width", "complaint"),
    [
        (8001, 8000, "its size, 8001x8000, is 64,008,000 pixels, more than the limit of 64,000,000"),
        (10_000, 10_000, "its size, 10000x10000, is 100,000,000 pixels, more than"),
        (60_000, 60_000, "its size is more than Pillow takes"),
        (1, 70_000, "its size, 1x70000, has a side of more than 65,535"),
        (70_000, 1, "its size, 70000x1, has a side of more than 65,535"),
        (0, 5, "not an image of a known format"),
    ],
)
def test_a_size_that_cannot_be_meant_is_refused_unread(height: int, width: int, complaint: str) -> None:
    for read in (decode, header_size):
        with pytest.raises(BadSample, match=f"x: {complaint}"):
            read(png_that_says(height, width), "x")


def test_pillows_warning_is_an_error_of_ours() -> None:
    with pytest.raises(BadSample, match="x: its size is more than Pillow takes"):  # warnings are errors here
        header_size(png_that_says(10_000, 10_000), "x")


def test_a_caller_may_take_larger_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10**8)
    assert header_size(png_that_says(8001, 8000), "x", max_pixels=64_008_000) == (8001, 8000)
    assert header_size(png_that_says(20_000, 20_000), "x", max_pixels=10**9) == (20_000, 20_000)
    with pytest.raises(BadSample, match="is 77 pixels, more than the limit of 76"):
        decode(encoded(PIXELS), "x", max_pixels=76)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    for read in (decode, header_size):
        with pytest.raises(BadSample, match="x: cannot be read: it is a FIFO"):
            read(tmp_path / "a.png", "x")


LARGE = picture(90, 133)


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1", "RGBA", "CMYK"])
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_large_image_is_averaged_as_it_is_read(mode: str, orientation: int, monkeypatch: pytest.MonkeyPatch) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(LARGE, "JPEG" if mode == "CMYK" else "PNG", mode, exif=exif)
    whole = decode(data, "x")
    assert torch.equal(decode(data, "x", least=(20, 20)), whole)  # it is not as large as that
    monkeypatch.setattr("arrn.runtime.pictures._READ_WHOLE", 1000)
    assert torch.equal(decode(data, "x", least=(46, 67)), whole)  # half of it would be too little
    for least in ((22, 20), (20, 30)):
        small = decode(data, "x", least=least)
        height, width = small.shape[1:]
        assert least[0] <= height <= whole.shape[1] // 2 + 1
        assert least[1] <= width <= whole.shape[2] // 2 + 1
        expected = torch.nn.functional.adaptive_avg_pool2d(whole.float(), (height, width))
        inner = (small.float() - expected)[:, :-1, :-1]  # the last cells of the two may be of other widths
        assert float(inner.abs().mean()) < (20 if mode in ("1", "P") else 4)


def test_what_is_transparent_shows_white_in_a_large_image_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arrn.runtime.pictures._READ_WHOLE", 100)
    pixels = np.zeros((16, 16, 4), np.uint8)
    pixels[:, 8:] = (10, 20, 30, 255)
    small = decode(encoded(pixels, "PNG", "RGBA"), "x", least=(4, 4))
    assert small[:, 0].T.tolist() == [[255, 255, 255]] * 2 + [[10, 20, 30]] * 2
    image = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16) // 128, "P")
    image.putpalette([1, 2, 3, 4, 5, 6])
    file = io.BytesIO()
    image.save(file, "PNG", transparency=1)
    small = decode(file.getvalue(), "x", least=(4, 4))
    assert small[:, :, 0].T.tolist() == [[1, 2, 3]] * 2 + [[255, 255, 255]] * 2


def test_jpeg_is_decoded_at_a_part_of_its_resolution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arrn.runtime.pictures._READ_WHOLE", 1000)
    loaded: list[tuple[int, int]] = []
    convert = Image.Image.convert
    data = encoded(LARGE, "JPEG", quality=95)

    def noting(image: Image.Image, *rest: str) -> Image.Image:
        loaded.append(image.size)
        return convert(image, *rest)

    monkeypatch.setattr(Image.Image, "convert", noting)
    small = decode(data, "x", least=(20, 20))
    assert loaded == [(34, 23)]  # a quarter, straight from the file
    assert small.shape == (3, 23, 34)


WHOLE = {kind: encoded(picture(9, 12), kind) for kind in KINDS}


@given(st.sampled_from(KINDS), st.data())
def test_damaged_files_give_an_image_or_a_bad_sample(kind: str, data: st.DataObject) -> None:
    damaged = bytearray(WHOLE[kind])
    for place in data.draw(st.lists(st.integers(0, len(damaged) - 1), max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    for read in (decode, header_size):
        try:
            answer = read(bytes(damaged), "x")
        except BadSample:
            continue
        if isinstance(answer, torch.Tensor):
            assert answer.ndim == 3
            assert answer.shape[0] == 3
