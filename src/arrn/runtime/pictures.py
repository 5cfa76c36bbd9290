"""Pictures: image files of the usual formats decoded to 8 bits, as a viewer would show them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ArrnError, first_line, needs
from .files import Array, BadSample, Encoded, check_pixels, open_encoded
from .levels import Grid

if TYPE_CHECKING:
    from PIL import Image

# Pillow knows many more, some of which start other programs; it tries them in order, so the usual ones come first.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
_READ_WHOLE = 16_000_000  # pixels; of more, what is made of them would take gigabytes
_ORIENTATION = 0x0112  # the EXIF tag
_SIDEWAYS = (5, 6, 7, 8)  # the orientations that swap height and width


def decode_picture(
    encoded: Encoded,
    where: str,
    grey: bool = False,
    *,
    least: Grid | None = None,
    max_pixels: int | None = None,
    out: Array | None = None,
) -> Array:
    """The image as uint8 of shape (3, height, width), RGB, or (1, height, width), its luma.

    Args:
        encoded: the bytes of an image file, or the path of one.
        where: what the error names.
        grey: whether to leave colour out.
        least: (height, width) that are enough: an image of more than 16 million pixels, along both sides at least
            twice as large, is read at a lower resolution: a whole part of its own, not below `least`. None reads all.
        max_pixels: more are refused; None is `MOST_PIXELS`. Pillow's own limit is raised to it.
        out: the array to write to and to return, where it has the shape of the image; otherwise a new one is made.

    Raises:
        BadSample: for what is missing, no image, truncated, corrupt, or too large.
    """
    with _opened(encoded, where, max_pixels) as image:
        return _to_array(image, grey, least, out)


def read_picture(
    encoded: Encoded, where: str, grey: bool = False, *, least: Grid | None = None, max_pixels: int | None = None
) -> tuple[Array, Grid]:
    """What `decode_picture` gives, and the image's own (height, width), also where less of it was read."""
    with _opened(encoded, where, max_pixels) as image:
        size = _upright_size(image)
        return _to_array(image, grey, least), size


def picture_to_array(image: Image.Image, where: str, grey: bool = False, *, max_pixels: int | None = None) -> Array:
    """An image that Pillow holds, as `decode_picture` gives files. The image stays as it is.

    Raises:
        BadSample: as for files.
    """
    with _checked(image, where, max_pixels):
        return _to_array(image, grey, None)


def _to_array(image: Image.Image, grey: bool, least: Grid | None, out: Array | None = None) -> Array:
    orientation = _orientation(image)
    enough: Image.Image = image
    if least is not None and math.prod(image.size) > _READ_WHOLE:
        enough = _reduced(image, least if orientation in _SIDEWAYS else least[::-1])
    pixels = _upright(_to_rgb(enough), orientation)
    shown = np.asarray(pixels.convert("L"))[None] if grey else np.asarray(pixels).transpose(2, 0, 1)
    if out is None or out.shape != shown.shape:
        return np.array(shown, order="C")
    out[...] = shown
    return out


def header_size(encoded: Encoded, where: str, max_pixels: int | None = None) -> tuple[int, int]:
    """(height, width) of what `decode_picture` would give, from the header alone.

    Raises:
        BadSample: when there is no header to read, or it tells of too large an image. Corruption further on goes
            unseen.
    """
    with _opened(encoded, where, max_pixels) as image:
        return _upright_size(image)


@contextmanager
def _opened(encoded: Encoded, where: str, max_pixels: int | None) -> Iterator[Image.Image]:
    """The image, its pixels not yet read; whatever goes wrong while it is open is a `BadSample`."""
    with needs("pillow", "reading images"):
        from PIL import Image
    if max_pixels is not None and max_pixels > (Image.MAX_IMAGE_PIXELS or max_pixels):
        Image.MAX_IMAGE_PIXELS = max_pixels  # Pillow would refuse them itself, and the caller has said so
    with _refusing(where), open_encoded(encoded, where) as file:
        if not file.read(1):
            raise BadSample(where, "it is empty")
        file.seek(0)
        with Image.open(file, formats=FORMATS) as image, _checked(image, where, max_pixels):
            yield image


@contextmanager
def _checked(image: Image.Image, where: str, max_pixels: int | None) -> Iterator[None]:
    """Refuses an image that is too large; whatever goes wrong within is a `BadSample`."""
    with _refusing(where):
        wrong = check_pixels(image.size[::-1], max_pixels)
        if wrong is not None:
            raise BadSample(where, wrong)
        yield


@contextmanager
def _refusing(where: str) -> Iterator[None]:
    try:
        yield
    except ArrnError:
        raise
    except Exception as error:  # decoders of corrupt bytes raise anything, SyntaxError and struct.error included
        raise BadSample(where, _reason(error)) from None


def _upright_size(image: Image.Image) -> tuple[int, int]:
    width, height = image.size
    return (width, height) if _orientation(image) in _SIDEWAYS else (height, width)


def _reason(error: Exception) -> str:
    from PIL import Image, UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return f"not an image of a known format ({', '.join(FORMATS)}), or a corrupt one"
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
