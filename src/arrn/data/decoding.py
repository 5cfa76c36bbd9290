"""Files to samples: what class folders and parquet files need of a kind of file, and how images are decoded."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np
import torch

from arrn.data.source import IMAGE, BadSample, Form
from arrn.errors import ArrnError, needs
from arrn.signal.grid import Grid

if TYPE_CHECKING:
    from PIL import Image

Encoded: TypeAlias = bytes | str | os.PathLike[str]
"""The bytes of a file, or its path."""

# Pillow knows many more, some of which start other programs; it tries them in order, so the usual ones come first.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
_ORIENTATION = 0x0112  # the EXIF tag
_SIDEWAYS = (5, 6, 7, 8)  # the orientations that swap height and width


class Codec(ABC):
    """How files of one kind are read. Pickles, since it goes to worker processes.

    Attributes:
        form: what comes out.
        suffixes: how the names of such files end, in lower case.
    """

    form: ClassVar[Form]
    suffixes: ClassVar[tuple[str, ...]]

    @abstractmethod
    def size(self, encoded: Encoded, where: str) -> Grid:
        """The grid of what `decode` gives, from the header alone where that is possible."""

    @abstractmethod
    def decode(self, encoded: Encoded, where: str) -> torch.Tensor:
        """The sample, shape (channels, *size). What cannot be read is a `BadSample` that names `where`."""

    def changes(self, encoded: Encoded, where: str) -> tuple[str, ...]:
        """What `decode` changes that a user should know of."""
        return ()


class PictureCodec(Codec):
    """Image files of the usual formats, as a viewer would show them."""

    form = IMAGE
    suffixes = (
        *(".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm"),
        *(".tif", ".tiff", ".webp"),
    )

    def size(self, encoded: Encoded, where: str) -> Grid:
        return header_size(encoded, where)

    def decode(self, encoded: Encoded, where: str) -> torch.Tensor:
        return decode(encoded, where)


PICTURES = PictureCodec()


def decode(encoded: Encoded, where: str, grey: bool = False) -> torch.Tensor:
    """The image as uint8 of shape (3, height, width), RGB, or (1, height, width), its luma.

    Args:
        encoded: the bytes of an image file, or the path of one.
        where: what the error names.
        grey: whether to leave colour out.

    Raises:
        BadSample: for what is missing, no image, truncated, corrupt, or too large to be meant.
    """
    with _opened(encoded, where) as image:
        orientation = _orientation(image)
        pixels = _upright(_to_rgb(image), orientation)
        if grey:
            return torch.from_numpy(np.array(pixels.convert("L"))[None])
        return torch.from_numpy(np.array(pixels)).permute(2, 0, 1).contiguous()


def header_size(encoded: Encoded, where: str) -> tuple[int, int]:
    """(height, width) of what `decode` would give, from the header alone.

    Raises:
        BadSample: when there is no header to read. Corruption further on goes unseen.
    """
    with _opened(encoded, where) as image:
        width, height = image.size
        return (width, height) if _orientation(image) in _SIDEWAYS else (height, width)


@contextmanager
def _opened(encoded: Encoded, where: str) -> Iterator[Image.Image]:
    """The image, its pixels not yet read; whatever goes wrong while it is open is a `BadSample`."""
    with needs("pillow", "reading images"):
        from PIL import Image
    try:
        if not (encoded if isinstance(encoded, bytes) else os.stat(encoded).st_size):
            raise BadSample(where, "it is empty")
        with Image.open(io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded, formats=_FORMATS) as image:
            width, height = image.size
            limit = Image.MAX_IMAGE_PIXELS
            if width < 1 or height < 1 or (limit is not None and width * height > limit):
                raise BadSample(where, f"its size, {height}x{width}, cannot be meant")
            yield image
    except ArrnError:
        raise
    except Exception as error:  # decoders of corrupt bytes raise anything, SyntaxError and struct.error included
        raise BadSample(where, _reason(error)) from None


def _reason(error: Exception) -> str:
    from PIL import Image, UnidentifiedImageError

    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, UnidentifiedImageError):
        return f"not an image of a known format ({', '.join(_FORMATS)}), or a corrupt one"
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return "its size cannot be meant: more pixels than PIL.Image.MAX_IMAGE_PIXELS"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read: {error.strerror}"
    return f"cannot be decoded: {(str(error) or type(error).__name__).splitlines()[0]}"


def _to_rgb(image: Image.Image) -> Image.Image:
    from PIL import Image

    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers of no known range; store it with 8 or 16 bits")
    if image.mode.startswith("I"):  # Pillow would clip 16 bits to 8 rather than scale them
        levels = np.asarray(image)
        if levels.min() < 0 or levels.max() > 0xFFFF:
            raise ValueError("its pixels are 32-bit numbers of no known range; store it with 8 or 16 bits")
        return Image.fromarray(((levels.astype(np.uint32) + 128) // 257).astype(np.uint8)).convert("RGB")
    image.load()  # some formats learn of their transparency only here
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        visible = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", visible.size, "white"), visible).convert("RGB")
    return image.convert("RGB")


def _orientation(image: Image.Image) -> int:
    """How the pixels must be turned, as EXIF numbers it. To be asked for before they are loaded."""
    from PIL import Image

    if image.format == "TIFF":
        return 1  # Pillow turns these itself, and gives the size of what comes out
    try:
        # A PNG's own getexif decodes the whole image, in case there is more behind the pixels.
        return int(Image.Image.getexif(image).get(_ORIENTATION, 1))
    except Exception:  # a damaged EXIF block is no reason to lose the image
        return 1


def _upright(image: Image.Image, orientation: int) -> Image.Image:
    from PIL import Image

    turn = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }.get(orientation)
    return image if turn is None else image.transpose(turn)
