"""Volumes: npy files of numpy, of which nothing is unpickled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from ..errors import first_line
from .files import Array, BadSample, Encoded, check_pixels, open_encoded
from .levels import Grid


@dataclass(frozen=True)
class NpyHeader:
    """What an npy file says of its array.

    Attributes:
        shape: of whole numbers of at least 0.
        dtype: of numbers; objects, which would be pickled, are refused.
        fortran: whether the first axis varies fastest.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool

    @property
    def size(self) -> int:
        """The bytes that follow the header."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_npy_header(stream: IO[bytes]) -> NpyHeader:
    """Reads a header, and leaves the stream where the numbers begin.

    Raises:
        ValueError: for what is none, and for arrays of objects, which are pickles.
    """
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
    except Exception:  # numpy reads headers as literals of Python: its errors are of Python's parser, in many types
        raise ValueError("the header of the array, which gives its shape and dtype, is damaged") from None
    if dtype.hasobject:
        raise ValueError("it holds Python objects (a pickle), which could run any code")
    if min(shape, default=0) < 0 or dtype.itemsize == 0:
        raise ValueError(f"an array of shape {shape} of {dtype} is impossible")
    return NpyHeader(tuple(map(int, shape)), dtype, bool(fortran))


def array_layout(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Grid, int, bool] | None:
    """The grid of one image or volume, the number of its channels, and whether they are the last axis.

    None for what is neither: not uint8, or of other axes.

    >>> array_layout((28, 28, 3), np.dtype("uint8"))
    ((28, 28), 3, True)
    >>> array_layout((28, 28, 28), np.dtype("uint8"))
    ((28, 28, 28), 1, False)
    """
    coloured = len(shape) >= 3 and shape[-1] in (1, 3) and min(shape[:-1]) > 3
    grid = shape[:-1] if coloured else shape
    if dtype != np.uint8 or len(grid) not in (2, 3) or min(grid) < 1:
        return None
    return grid, shape[-1] if coloured else 1, coloured


def channels_to_front(sample: Array, channels_last: bool) -> Array:
    """A copy of one image or volume, (channels, *grid)."""
    return np.array(np.moveaxis(sample, -1, 0) if channels_last else sample[None], order="C")


def decode_volume(encoded: Encoded, where: str, max_pixels: int | None = None) -> Array:
    """The volume in an npy file, uint8, (channels, depth, height, width); there, channels are last or left out.

    Raises:
        BadSample: for a file that cannot be read, or holds something else. Nothing is unpickled.
    """
    with open_encoded(encoded, where) as stream:
        try:
            header = read_npy_header(stream)
            layout = array_layout(header.shape, header.dtype)
            if layout is None or len(layout[0]) != 3:
                wanted = "uint8 of shape (depth, height, width), or with 3 channels last"
                raise BadSample(where, f"it should hold {wanted}; got {header.dtype} of shape {header.shape}")
            wrong = check_pixels(layout[0], max_pixels)
            if wrong is not None:
                raise BadSample(where, wrong)
            data = stream.read(header.size + 1)
            if len(data) != header.size:
                found = "more" if len(data) > header.size else f"{len(data):,}"
                raise ValueError(f"its header announces {header.size:,} bytes, but the file holds {found}")
            volume: Array = np.frombuffer(data, np.uint8)
            volume = volume.reshape(header.shape, order="F" if header.fortran else "C")
        except BadSample:
            raise
        except Exception as error:  # a damaged file may bring anything
            raise BadSample(where, f"not an npy file, or a truncated one: {first_line(error)}") from None
    return channels_to_front(volume, channels_last=layout[2])
