"""Files to samples: what class folders and parquet files need of a kind of file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch

from arrn.data.source import IMAGE, Form
from arrn.runtime.files import Encoded as Encoded
from arrn.runtime.pictures import decode_picture
from arrn.runtime.pictures import header_size as header_size
from arrn.runtime.signals import SUFFIXES
from arrn.signal.grid import Grid


class Codec(ABC):
    """A reader of files of one kind. It pickles, since worker processes use it.

    Attributes:
        form: the form of the samples.
        suffixes: the endings of the names of such files, in lower case.
        max_pixels: the most pixels of an image; larger ones are refused. None is 64 million.
    """

    form: ClassVar[Form]
    suffixes: ClassVar[tuple[str, ...]]
    max_pixels: int | None = None

    @abstractmethod
    def size(self, encoded: Encoded, where: str) -> Grid:
        """The size of the sample that `decode` returns. Reads the header alone if it can."""

    @abstractmethod
    def decode(self, encoded: Encoded, where: str, out: torch.Tensor | None = None) -> torch.Tensor:
        """The sample, of shape (channels, *size).

        Args:
            encoded: the bytes of a file, or its path.
            where: what the error names.
            out: a tensor that may be written to and returned, where it has the shape and dtype of the sample.

        Raises:
            BadSample: for a file that cannot be read; the error names `where`.
        """

    def changes(self, encoded: Encoded, where: str) -> tuple[str, ...]:
        """What `decode` changes in a sample, for the user to know."""
        return ()


@dataclass(frozen=True)
class PictureCodec(Codec):
    """Image files of the usual formats, as a viewer would show them."""

    form = IMAGE
    suffixes = SUFFIXES[2]
    max_pixels: int | None = None

    def size(self, encoded: Encoded, where: str) -> Grid:
        return header_size(encoded, where, self.max_pixels)

    def decode(self, encoded: Encoded, where: str, out: torch.Tensor | None = None) -> torch.Tensor:
        if out is None:
            return decode(encoded, where, max_pixels=self.max_pixels)
        array = out.numpy()
        decoded = decode_picture(encoded, where, max_pixels=self.max_pixels, out=array)
        return out if decoded is array else torch.from_numpy(decoded)


PICTURES = PictureCodec()


def decode(
    encoded: Encoded, where: str, grey: bool = False, *, least: Grid | None = None, max_pixels: int | None = None
) -> torch.Tensor:
    """`arrn.runtime.pictures.decode_picture`, as a tensor: uint8 of shape (3, height, width), or (1, height, width)."""
    return torch.from_numpy(decode_picture(encoded, where, grey, least=least, max_pixels=max_pixels))
