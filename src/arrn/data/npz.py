"""Images and volumes as arrays of numpy, in npz files of MedMNIST's layout."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from arrn.data.bounds import as_labels, check_samples, check_unpacked, numbered_classes
from arrn.data.source import Form, Source
from arrn.errors import ArrnError, first_line
from arrn.reading import open_regular
from arrn.runtime.files import Array, check_pixels
from arrn.runtime.volumes import NpyHeader, array_layout, channels_to_front, read_npy_header

_NPY, _SUFFIX = b"\x93NUMPY", ".npy"  # how a single array begins, and what names in an archive end in
_AT_ONCE = 2**24  # bytes
_SIZES = ("", "_64", "_128", "_224")  # MedMNIST's names for one set at several sizes; none is 28


class NpzArrays(Source):
    """A split of an npz file: uint8 images or volumes, all of one size, grey or RGB.

    Images have the shape (samples, *size), or (samples, *size, channels) with 1 or 3 channels. Labels have the shape
    (samples,) or (samples, 1). The images are read on first use. A pickle of this object holds no images: each worker
    process opens the file itself. Nothing in the file is unpickled (``allow_pickle=False``).

    Args:
        file: the npz file.
        split: "train", "val" or "test".
        name: the name of the set; by default that of the file.
        max_pixels: the most pixels of an image, or voxels of a volume; larger ones are refused. None is 64 million.

    Raises:
        ArrnError: for a file that is not an npz file, without one of the keys, or with other arrays than these.
    """

    def __init__(
        self, file: str | os.PathLike[str], split: str, name: str | None = None, max_pixels: int | None = None
    ) -> None:
        self.file = Path(file)
        with _opened(self.file) as archive:
            train = _labels(archive, "train", self.file)
            labels = train if split == "train" else _labels(archive, split, self.file)
            self.key = f"{split}_images"
            with _member(archive, self.key, self.file) as (_, header):
                shape, dtype = header.shape, header.dtype
        layout = array_layout(shape[1:], dtype)
        if layout is None:
            raise ArrnError(
                f"{self.file}: {self.key} should be uint8 of shape (samples, height, width), (samples, depth, height, "
                f"width), or either with 3 channels last; got {dtype} of shape {shape}"
            )
        self._grid, channels, self._last = layout
        if (wrong := check_pixels(self._grid, max_pixels)) is not None:
            raise ArrnError(f"{self.file}: {self.key}: {wrong}")
        if shape[0] != len(labels):
            raise ArrnError(f"{self.file} has {shape[0]} {self.key}, but {len(labels)} {split}_labels")
        class_names = numbered_classes(train, f"{self.file}: train_labels")
        form = Form(len(self._grid), channels, torch.uint8)
        super().__init__(name or self.file.stem, split, class_names, labels, form, max_pixels)
        self._samples: Array | None = None

    def where(self, index: int) -> str:
        return f"{self.file} {self.key} {index}"

    def size(self, index: int) -> tuple[int, ...]:
        return self._grid

    def read(self, index: int) -> torch.Tensor:
        if self._samples is None:
            with _opened(self.file) as archive:
                self._samples = _array(archive, self.key, self.file)
        return torch.from_numpy(channels_to_front(self._samples[index], self._last))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_samples": None}


def open_npz(
    file: Path, name: str | None = None, max_pixels: int | None = None
) -> tuple[NpzArrays, NpzArrays | None, NpzArrays | None]:
    """The training split, the test split and the validation split of a file; all but the first may be None.

    A validation split stands in for a test split that is not there.

    Raises:
        ArrnError: also for a class that the training split does not have.
    """
    with _opened(file) as archive:
        there = {key.partition("_")[0] for key in _keys(archive)}
    train = NpzArrays(file, "train", name, max_pixels)
    test, validation = (
        NpzArrays(file, split, name, max_pixels) if split in there else None for split in ("test", "val")
    )
    last = len(train.class_names) - 1
    for other in (test, validation):
        if other is not None and (largest := int(other.labels.max())) > last:
            raise ArrnError(
                f"{file}: the largest of {other.split}_labels is {largest}, but the largest of train_labels is {last}"
            )
    if test is None and validation is not None:
        validation.split = "test"
        return train, validation, None
    return train, test, validation


def find_npz(root: Path, name: str) -> tuple[Path, str | None] | None:
    """The npz file of a set in a folder, and what to say of the choice.

    It is `root` itself, ROOT/NAME.npz, or the only one there. NAME.npz, NAME_64.npz and so on, MedMNIST's names
    for one set at several sizes, are one: the largest is taken, since a network can lower it to the others.

    Raises:
        ArrnError: for several files, of which `name` is none.
    """
    if root.is_file():
        return (root, None) if root.suffix == ".npz" else None
    there = {path.stem: path for path in sorted(root.glob("*.npz"))}
    sizes = [there[name + size] for size in _SIZES if name + size in there]
    if not sizes and len(there) == 1:
        sizes = list(there.values())
    if not sizes and there:
        raise ArrnError(f"{root} holds several npz files ({', '.join(sorted(there))}): choose one of them by its name")
    if not sizes:
        return None
    others = ", ".join(path.name for path in sizes[:-1])
    return sizes[-1], f"{sizes[-1].name} is read, the largest size; there is also {others}" if others else None


@contextmanager
def _opened(file: Path) -> Iterator[zipfile.ZipFile]:
    """The archive; whatever goes wrong while it is open is an `ArrnError`."""
    try:
        with open_regular(file) as stream:
            if stream.read(len(_NPY)) == _NPY:
                raise ArrnError(f"{file} is not an npz file: it holds a single array, as npy files do")
            stream.seek(0)
            with zipfile.ZipFile(stream) as archive:
                yield archive
    except (ArrnError, MemoryError):
        raise
    except zipfile.BadZipFile as error:
        raise ArrnError(f"{file} is truncated or not an npz file: {first_line(error)}") from None
    except OSError as error:
        raise ArrnError(f"{file} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # a damaged archive may bring anything
        raise ArrnError(f"{file} is truncated or not an npz file: {first_line(error)}") from None


@contextmanager
def _member(archive: zipfile.ZipFile, key: str, file: Path) -> Iterator[tuple[IO[bytes], NpyHeader]]:
    """An array's bytes, at the first number, and its header; all that it claims is checked before anything is read."""
    name = f"{key}{_SUFFIX}"
    if name not in archive.namelist():
        raise ArrnError(f"{file} has no {key!r}; its keys are {', '.join(_keys(archive)) or 'none'}")
    entry = archive.getinfo(name)
    check_unpacked(entry.file_size, entry.compress_size, f"{file}: {key}")
    try:
        with archive.open(entry) as stream:
            header = read_npy_header(stream)
            if header.size != entry.file_size - stream.tell():
                said = f"shape {header.shape} of {header.dtype}, {header.size:,} bytes"
                raise ValueError(f"its header announces {said}, but the file holds {entry.file_size - stream.tell():,}")
            yield stream, header
    except (ArrnError, MemoryError):
        raise
    except Exception as error:  # corrupt deflate data, a damaged header, a password
        raise ArrnError(f"{file}: {key} cannot be read: {first_line(error)}") from None


def _keys(archive: zipfile.ZipFile) -> list[str]:
    return [name.removesuffix(_SUFFIX) for name in archive.namelist() if name.endswith(_SUFFIX)]


def _array(archive: zipfile.ZipFile, key: str, file: Path) -> Array:
    with _member(archive, key, file) as (stream, header):
        found: Array = np.empty(header.size, np.uint8)
        filled = 0
        while filled < header.size:
            part = stream.read(min(_AT_ONCE, header.size - filled))
            if not part:
                raise ValueError(f"its header announces {header.size:,} bytes, but the file holds {filled:,}")
            found[filled : filled + len(part)] = np.frombuffer(part, np.uint8)
            filled += len(part)
        if stream.read(1):  # at its end, the sum is compared
            raise ValueError(f"its header announces {header.size:,} bytes, but the file holds more")
        return found.view(header.dtype).reshape(header.shape, order="F" if header.fortran else "C")


def _labels(archive: zipfile.ZipFile, split: str, file: Path) -> torch.Tensor:
    key = f"{split}_labels"
    with _member(archive, key, file) as (_, header):
        count, *others = header.shape or (0,)
        if not count or others not in ([], [1]) or header.dtype.kind not in "iu":
            raise ArrnError(
                f"{file}: {key} should be whole numbers, one class for each sample, got {header.dtype} of shape "
                f"{header.shape}"
            )
        check_samples(count, f"{file}: {key}")
    return as_labels(_array(archive, key, file).reshape(count), f"{file}: {key}")
