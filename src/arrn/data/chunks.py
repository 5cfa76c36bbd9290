"""Sources whose samples lie in chunks that are read whole: row groups of parquet files, stretches of tar files."""

from __future__ import annotations

import bisect
import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, TypeAlias

import torch

from arrn.data.decoding import PICTURES, Codec
from arrn.data.source import IMAGE, BadSample, Source
from arrn.data.storage import StoredFile

_KEPT_BYTES = 2**28


EncodedChunk: TypeAlias = list[bytes | None]
"""The encoded samples of a chunk, in order; None is one that holds no bytes."""


class ChunkedSource(Source):
    """A split whose samples lie one after the other in chunks. A chunk is always read whole.

    `read` keeps the latest chunks, up to 256 MiB, so reading the samples in order reads each chunk once. The order of
    `StreamedBatches` reads each chunk about once. A pickle of this object holds no chunks: worker processes get encoded
    samples to decode.

    Attributes:
        files: the shards.
        lengths: the number of samples of each chunk.
        weights: the number of bytes of each chunk.
        file_of: the number of each chunk's file.
        codec: decodes a sample.
    """

    files: tuple[StoredFile, ...]
    lengths: tuple[int, ...]
    weights: tuple[int, ...]
    file_of: tuple[int, ...]
    codec: Codec = PICTURES

    def _lay_out(self, lengths: Iterable[int], weights: Iterable[int], file_of: Iterable[int]) -> None:
        """Says where the chunks lie."""
        self.lengths, self.weights, self.file_of = tuple(lengths), tuple(weights), tuple(file_of)
        self.starts = starts(self.lengths)
        self.forget()

    @abstractmethod
    def read_chunk(self, chunk: int, given_up: threading.Event | None = None) -> EncodedChunk:
        """The encoded samples of a chunk.

        Args:
            chunk: its number.
            given_up: an event that is set when nobody needs the chunk any more.
        """

    @property
    def layout(self) -> list[object]:
        """What else than the files decides which samples they hold, as JSON has it."""
        return []

    @property
    def chunk_of(self) -> torch.Tensor:
        """The number of the chunk of each sample, int64 of shape (samples,)."""
        return torch.arange(len(self.lengths)).repeat_interleave(torch.tensor(self.lengths))

    def samples_of(self, chunk: int) -> range:
        """The samples of a chunk."""
        return range(self.starts[chunk], self.starts[chunk] + self.lengths[chunk])

    def origin(self) -> tuple[ChunkedSource, torch.Tensor]:
        return self, torch.arange(len(self))

    def size(self, index: int) -> tuple[int, ...]:
        return self.codec.size(self.checked(index, self._encoded(index)), self.where(index))

    def read(self, index: int) -> torch.Tensor:
        return self.decode(index, self._encoded(index))

    def decode(self, index: int, encoded: bytes | None, out: torch.Tensor | None = None) -> torch.Tensor:
        return self.codec.decode(self.checked(index, encoded), self.where(index), out)

    def changes(self, index: int) -> tuple[str, ...]:
        if self.form == IMAGE:  # nothing to say, and no need to fetch the bytes for it
            return ()
        return self.codec.changes(self.checked(index, self._encoded(index)), self.where(index))

    def checked(self, index: int, encoded: bytes | None) -> bytes:
        """The bytes of a sample.

        Raises:
            BadSample: for a sample without bytes, or whose label is not the number of a class.
        """
        self.check_label(index)
        if encoded is None:
            raise BadSample(self.where(index), self.without_bytes(index))
        return encoded

    def without_bytes(self, index: int) -> str:
        """What is wrong with a sample that has none."""
        return "it holds no bytes"

    def locate(self, index: int) -> tuple[int, int]:
        """The chunk of a sample, and its place there."""
        if not 0 <= index < len(self):
            raise IndexError(f"{self.name} has {len(self)} samples, got index {index}")
        chunk = bisect.bisect_right(self.starts, index) - 1
        return chunk, index - self.starts[chunk]

    def _encoded(self, index: int) -> bytes | None:
        chunk, place = self.locate(index)
        self.check_label(index)  # without reading anything
        with self._lock:
            if chunk not in self._kept:
                self._kept[chunk] = self.read_chunk(chunk)
                sizes = [sum(len(content or b"") for content in kept) for kept in self._kept.values()]
                while len(sizes) > 1 and sum(sizes) > _KEPT_BYTES:
                    self._kept.popitem(last=False)
                    del sizes[0]
            self._kept.move_to_end(chunk)
            return self._kept[chunk][place]

    def _clips(self) -> Iterator[tuple[bytes, str]]:
        """The encoded samples that are there, in order, and where; which of them can be read is another question."""
        for index in range(len(self)):
            try:
                yield self.checked(index, self._encoded(index)), self.where(index)
            except BadSample:
                continue

    def forget(self) -> None:
        """Drops the chunks that are kept."""
        self._kept: OrderedDict[int, EncodedChunk] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_kept", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.forget()


def starts(lengths: Iterable[int]) -> list[int]:
    """Where each of the parts that lie one after the other begins.

    >>> starts([3, 0, 2])
    [0, 3, 3]
    """
    return list(accumulate(lengths, initial=0))[:-1]
