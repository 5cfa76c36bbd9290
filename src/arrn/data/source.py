"""A split of a labelled set, one sample at a time, and what its samples have in common: axes, channels, dtype."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from arrn.data.bounds import check_class_names, check_samples
from arrn.errors import ArrnError
from arrn.runtime.files import BadSample as BadSample

if TYPE_CHECKING:
    from arrn.data.chunks import ChunkedSource

_WORDS = {1: "clip", 2: "image", 3: "volume"}

# The best first. A validation split stands in for a test split that is not there; beside one it is a third split.
SPLIT_NAMES = {
    "train": ("train", "training"),
    "test": ("test", "testing"),
    "validation": ("validation", "valid", "val"),
}


@dataclass(frozen=True)
class Form:
    """The number of axes, the number of channels and the dtype that all samples of a set share. Their sizes may differ.

    Attributes:
        ndim: the number of spatial axes: 1 (sound), 2 (images), 3 (volumes).
        channels: the number of channels: 3 for RGB, 1 for grey images and for sound.
        dtype: the dtype of the stored numbers: uint8 (0 to 255), or int16 (-32768 to 32767).

    >>> Form(3, 1, torch.uint8).words
    'volumes'
    """

    ndim: int
    channels: int
    dtype: torch.dtype

    @property
    def words(self) -> str:
        """The plural noun for the samples: "clips", "images" or "volumes"."""
        return f"{word_for(self.ndim)}s"

    @property
    def in_words(self) -> str:
        """The form as errors name it, such as "images with 3 channels"."""
        return f"{self.words} with {self.channels} channel{'s' * (self.channels != 1)}"


IMAGE = Form(2, 3, torch.uint8)
SOUND = Form(1, 1, torch.int16)


def word_for(ndim: int) -> str:
    """The noun for a sample with `ndim` axes: "clip", "image" or "volume"."""
    return _WORDS[ndim]


class Source(ABC):
    """One split of a labelled set, read one sample at a time. Pickles, since it goes to worker processes.

    Attributes:
        name: the name of the set, such as "cifar10", or of its folder.
        split: "train", "test" or "validation".
        class_names: a name for each class.
        labels: the class of each sample, int64 of shape (N,); -1 for a sample without a label. `read` and `size` raise
            `BadSample` for a sample whose label is not the number of a class.
        form: the axes, channels and dtype of the samples.
        max_pixels: the most pixels of an image, or voxels of a volume; larger ones are refused. None is 64 million.
    """

    def __init__(
        self,
        name: str,
        split: str,
        class_names: Iterable[str],
        labels: torch.Tensor,
        form: Form = IMAGE,
        max_pixels: int | None = None,
    ) -> None:
        self.name = name
        self.split = split
        self.class_names = tuple(class_names)
        self.labels = labels
        check_samples(len(labels), name)
        check_class_names(self.class_names, name)
        self.form = form
        self.max_pixels = max_pixels

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.split!r}, {len(self)} in {len(self.class_names)} classes)"

    @abstractmethod
    def where(self, index: int) -> str:
        """The place of a sample, for errors: its file, or "FILE row 17". Rows are counted from 0 in each file."""

    @abstractmethod
    def size(self, index: int) -> tuple[int, ...]:
        """The size of a sample: (height, width) of an image, (samples,) of sound. Reads the header alone if it can."""

    @abstractmethod
    def read(self, index: int) -> torch.Tensor:
        """The sample as a tensor of shape (channels, *size), such as an RGB image: uint8 of shape (3, height, width).

        Raises:
            BadSample: for a sample that cannot be read, or whose label is not the number of a class.
        """

    def changes(self, index: int) -> tuple[str, ...]:
        """What `read` changes in a sample, for the user to know, such as "resampled from 44100 to 8000 Hz"."""
        return ()

    def origin(self) -> tuple[ChunkedSource, torch.Tensor] | None:
        """The source that reads the chunks, and the index of each sample there; None for samples without chunks."""
        return None

    def decode(self, index: int, encoded: bytes | None, out: torch.Tensor | None = None) -> torch.Tensor:
        """The sample that `read` returns, from its encoded bytes, which were read with its chunk.

        Args:
            index: of the sample.
            encoded: its bytes.
            out: a tensor that may be written to and returned, where it has the shape and dtype of the sample. It saves
                a copy of every sample of a batch.

        Raises:
            BadSample: as `read` does.
        """
        raise NotImplementedError(f"the samples of a {type(self).__name__} do not lie in chunks")

    def check_label(self, index: int) -> None:
        """Raises `BadSample` unless the sample's label is one of the classes."""
        label, classes = int(self.labels[index]), len(self.class_names)
        if not 0 <= label < classes:
            what = "has no label" if label == -1 else f"has label {label}"
            raise BadSample(self.where(index), f"{what}, but the {classes} classes are numbered 0 to {classes - 1}")


class Selection(Source):
    """Some samples of a source, in the order of `indices`.

    >>> from arrn.data import open_dataset
    >>> few = Selection(open_dataset("sample").train, [7, 3])
    >>> len(few), few.labels.shape
    (2, torch.Size([2]))
    """

    def __init__(self, source: Source, indices: Iterable[int] | torch.Tensor) -> None:
        if not isinstance(indices, torch.Tensor):
            indices = torch.tensor(list(indices), dtype=torch.int64)
        low, high = (int(indices.min()), int(indices.max())) if len(indices) else (0, -1)
        if low < 0 or high >= len(source):
            raise ArrnError(f"indices must lie in 0 to {len(source) - 1}, got {low} to {high}")
        labels = source.labels[indices]
        super().__init__(source.name, source.split, source.class_names, labels, source.form, source.max_pixels)
        self.source = source
        self.indices = indices

    def where(self, index: int) -> str:
        return self.source.where(int(self.indices[index]))

    def size(self, index: int) -> tuple[int, ...]:
        return self.source.size(int(self.indices[index]))

    def read(self, index: int) -> torch.Tensor:
        return self.source.read(int(self.indices[index]))

    def changes(self, index: int) -> tuple[str, ...]:
        return self.source.changes(int(self.indices[index]))

    def origin(self) -> tuple[ChunkedSource, torch.Tensor] | None:
        found = self.source.origin()
        return None if found is None else (found[0], found[1][self.indices])

    def decode(self, index: int, encoded: bytes | None, out: torch.Tensor | None = None) -> torch.Tensor:
        return self.source.decode(int(self.indices[index]), encoded, out)
