"""Files of samples: only regular ones are opened, their size is bounded, and a bad one is a `BadSample`."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from ..errors import ArrnError
from ..reading import open_regular
from .levels import Grid

Array: TypeAlias = np.ndarray[Any, Any]

Encoded: TypeAlias = bytes | str | os.PathLike[str]
"""The bytes of a file, or its path."""

MOST_PIXELS = 64_000_000
"""Pixels of an image, or voxels of a volume, unless a caller takes more: 8000x8000, or 400x400x400."""

LONGEST_SIDE = 2**16 - 1
"""Pixels along a side, which is what JPEG can hold: of longer ones a matrix that resamples them gets too large."""


class BadSample(ArrnError):  # noqa: N818 - it is also what reports list, not only what is raised
    """A sample that cannot be used: its file is missing or corrupt, or its label means nothing.

    Attributes:
        where: the file, or the file and the row.
        reason: what is wrong with it.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where = where
        self.reason = reason

    def __reduce__(self) -> tuple[type[BadSample], tuple[str, str]]:
        # Worker processes send their errors home pickled; by default that would pass the message as `where`.
        return type(self), (self.where, self.reason)


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


def check_pixels(size: Grid, most: int | None = None) -> str | None:
    """What is wrong with the size of an image or a volume; None where nothing is.

    Args:
        size: its grid.
        most: pixels, or voxels, that are taken; None is `MOST_PIXELS`.

    >>> check_pixels((9400, 9400))
    'its size, 9400x9400, is 88,360,000 pixels, more than the limit of 64,000,000: raise --max-pixels (max_pixels)'
    """
    most = MOST_PIXELS if most is None else most
    shape = "x".join(map(str, size))
    if min(size) < 1:
        return f"its size, {shape}, is impossible"
    if math.prod(size) > most:
        words = "pixels" if len(size) == 2 else "voxels"
        asked = f"its size, {shape}, is {math.prod(size):,} {words}"
        return f"{asked}, more than the limit of {most:,}: raise --max-pixels (max_pixels)"
    if max(size) > LONGEST_SIDE:
        return f"its size, {shape}, has a side of more than {LONGEST_SIDE:,}"
    return None
