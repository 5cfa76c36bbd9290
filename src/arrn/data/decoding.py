"""Files to samples: what class folders and parquet files need of a kind of file, and how images are decoded."""

from __future__ import annotations

import io
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, ClassVar, TypeAlias

import numpy as np
import torch

from arrn.data.bounds import check_pixels
from arrn.data.source import IMAGE, BadSample, Form
from arrn.errors import ArrnError, first_line, needs
from arrn.reading import open_regular
from arrn.signal.grid import Grid

if TYPE_CHECKING:
    from PIL import Image

Encoded: TypeAlias = bytes | str | os.PathLike[str]
"""The bytes of a file, or its path."""

# Pillow knows many more, some of which start other programs; it tries them in order, so the usual ones come first.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
_READ_WHOLE = 16_000_000  # pixels; of more, what is made of them would take gigabytes
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


@contextmanager
def open_encoded(encoded: Encoded, where: str) -> Iterator[BinaryIO]:
    """The bytes of a file, to be read; what cannot be opened, or is no regular file, is a `BadSample`."""
    if isinstance(encoded, bytes):
        yield io.BytesIO(encoded)
        return
    with ExitStack() as opened:
        try:
            file = opened.enter_context(open_regular(Path(encoded)))
        except FileNotFoundError:
            raise BadSample(where, "no such file") from None
        except (OSError, ValueError) as error:  # a zero byte in a name is a ValueError
            raise BadSample(where, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
        yield file


def decode(
    encoded: Encoded, where: str, grey: bool = False, *, least: Grid | None = None, max_pixels: int | None = None
) -> torch.Tensor:
    """The image as uint8 of shape (3, height, width), RGB, or (1, height, width), its luma.

    Args:
        encoded: the bytes of an image file, or the path of one.
        where: what the error names.
        grey: whether to leave colour out.
        least: (height, width) that are enough: an image of more than 16 million pixels, along both sides at least
            twice as large, is read at a lower resolution: a whole part of its own, not below `least`. None reads all.
        max_pixels: more are refused; None is `MOST_PIXELS`. Pillow's own limit is raised to it.

    Raises:
        BadSample: for what is missing, no image, truncated, corrupt, or too large.
    """
    with _opened(encoded, where, max_pixels) as image:
        orientation = _orientation(image)
        enough: Image.Image = image
        if least is not None and math.prod(image.size) > _READ_WHOLE:
            enough = _reduced(image, least if orientation in _SIDEWAYS else least[::-1])
        pixels = _upright(_to_rgb(enough), orientation)
        if grey:
            return torch.from_numpy(np.array(pixels.convert("L"))[None])
        return torch.from_numpy(np.array(pixels)).permute(2, 0, 1).contiguous()


def header_size(encoded: Encoded, where: str, max_pixels: int | None = None) -> tuple[int, int]:
    """(height, width) of what `decode` would give, from the header alone.

    Raises:
        BadSample: when there is no header to read, or it tells of too large an image. Corruption further on goes
            unseen.
    """
    with _opened(encoded, where, max_pixels) as image:
        width, height = image.size
        return (width, height) if _orientation(image) in _SIDEWAYS else (height, width)


@contextmanager
def _opened(encoded: Encoded, where: str, max_pixels: int | None) -> Iterator[Image.Image]:
    """The image, its pixels not yet read; whatever goes wrong while it is open is a `BadSample`."""
    with needs("pillow", "reading images"):
        from PIL import Image
    if max_pixels is not None and max_pixels > (Image.MAX_IMAGE_PIXELS or max_pixels):
        Image.MAX_IMAGE_PIXELS = max_pixels  # Pillow would refuse them itself, and the caller has said so
    try:
        with open_encoded(encoded, where) as file:
            if not file.read(1):
                raise BadSample(where, "it is empty")
            file.seek(0)
            with Image.open(file, formats=_FORMATS) as image:
                width, height = image.size
                wrong = check_pixels((height, width), max_pixels)
                if wrong is not None:
                    raise BadSample(where, wrong)
                yield image
    except ArrnError:
        raise
    except Exception as error:  # decoders of corrupt bytes raise anything, SyntaxError and struct.error included
        raise BadSample(where, _reason(error)) from None


def _reason(error: Exception) -> str:
    from PIL import Image, UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return f"not an image of a known format ({', '.join(_FORMATS)}), or a corrupt one"
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"its size is more than Pillow takes, {Image.MAX_IMAGE_PIXELS:,} pixels (PIL.Image.MAX_IMAGE_PIXELS)"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read: {error.strerror}"
    return f"cannot be decoded: {first_line(error)}"


def _reduced(image: Image.Image, least: tuple[int, ...]) -> Image.Image:
    """The image at a whole part of its resolution, both sides at least as large as in `least`, (width, height).

    JPEG is decoded so; other formats are decoded whole, and averaged before anything is copied.
    """
    image.draft(None, (least[0], least[1]))
    image.load()
    factor = min(have // want for have, want in zip(image.size, least, strict=True))
    if factor < 2 or image.mode[:1] in ("I", "F"):
        return image
    transparent = image.mode == "PA" or "transparency" in image.info
    if transparent or image.mode in ("P", "1"):  # numbers of colours have no mean
        image = image.convert("RGBA" if transparent else "RGB")
    return image.reduce(factor)


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
