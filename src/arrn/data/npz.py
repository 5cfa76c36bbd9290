"""Images and volumes as arrays of numpy, in npz files of MedMNIST's layout."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from arrn.data.source import Form, Source
from arrn.errors import ArrnError
from arrn.signal.grid import Grid

Array: TypeAlias = np.ndarray[Any, Any]
_SIZES = ("", "_64", "_128", "_224")  # MedMNIST's names for one set at several sizes; none is 28


class NpzArrays(Source):
    """A split of an npz file: uint8 images or volumes, all of one size, grey or RGB.

    Arrays may be (samples, *size) or (samples, *size, channels), with 1 or 3 channels; labels (samples,) or
    (samples, 1). The images are read when they are first asked for. A pickle holds none: a worker process opens
    the file itself. Nothing is unpickled (``allow_pickle=False``).

    Args:
        file: the npz file.
        split: "train", "val" or "test".
        name: the name of the set; by default that of the file.

    Raises:
        ArrnError: for a file that is none, misses a key, or holds something else under it.
    """

    def __init__(self, file: str | os.PathLike[str], split: str, name: str | None = None) -> None:
        self.file = Path(file)
        with _opened(self.file) as arrays:
            train = _labels(arrays, "train", self.file)
            labels = train if split == "train" else _labels(arrays, split, self.file)
            shape, dtype = _shape_of(arrays, f"{split}_images", self.file)
        self.key = f"{split}_images"
        layout = array_layout(shape[1:], dtype)
        if layout is None:
            raise ArrnError(
                f"{self.file}: {self.key} should be uint8 of shape (samples, height, width), (samples, depth, height, "
                f"width), or either with 3 channels last; got {dtype} of shape {shape}"
            )
        self._grid, channels, self._last = layout
        if shape[0] != len(labels):
            raise ArrnError(f"{self.file}: {shape[0]} {self.key}, but {len(labels)} {split}_labels")
        class_names = tuple(map(str, range(int(train.max()) + 1)))
        form = Form(len(self._grid), channels, torch.uint8)
        super().__init__(name or self.file.stem, split, class_names, labels, form)
        self._samples: Array | None = None

    def where(self, index: int) -> str:
        return f"{self.file} {self.key} {index}"

    def size(self, index: int) -> tuple[int, ...]:
        return self._grid

    def read(self, index: int) -> torch.Tensor:
        if self._samples is None:
            with _opened(self.file) as arrays:
                self._samples = _array(arrays, self.key, self.file)
        return channels_to_front(self._samples[index], self._last)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_samples": None}


def open_npz(file: Path, name: str | None = None) -> tuple[NpzArrays, NpzArrays | None, NpzArrays | None]:
    """The training split, the test split and the validation split of a file; all but the first may be None.

    A validation split stands in for a test split that is not there.

    Raises:
        ArrnError: also for a class that the training split does not have.
    """
    with _opened(file) as arrays:
        there = {key.partition("_")[0] for key in arrays.files}
    train = NpzArrays(file, "train", name)
    test, validation = (NpzArrays(file, split, name) if split in there else None for split in ("test", "val"))
    last = len(train.class_names) - 1
    for other in (test, validation):
        if other is not None and (largest := int(other.labels.max())) > last:
            raise ArrnError(f"{file}: {other.split}_labels goes up to {largest}, but train_labels only to {last}")
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
        raise ArrnError(f"{root} holds several npz files ({', '.join(sorted(there))}): say which one by its name")
    if not sizes:
        return None
    others = ", ".join(path.name for path in sizes[:-1])
    return sizes[-1], f"{sizes[-1].name} is read, the largest size; there is also {others}" if others else None


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    try:
        stream = file.open("rb")
    except OSError as error:
        raise ArrnError(f"{file} cannot be read: {error.strerror or error}") from None
    with stream:  # numpy leaves it open where the file is broken
        try:
            arrays = np.load(stream, allow_pickle=False)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ArrnError(f"{file} is truncated or not an npz file: {str(error).splitlines()[0]}") from None
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise ArrnError(f"{file} is not an npz file: it holds a single array")
        with arrays:
            yield arrays


def _array(arrays: Any, key: str, file: Path) -> Array:
    _shape_of(arrays, key, file)
    try:
        found: Array = arrays[key]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zipfile.LargeZipFile) as error:
        raise ArrnError(f"{file}: {key} cannot be read: {str(error).splitlines()[0]}") from None
    return found


def _shape_of(arrays: Any, key: str, file: Path) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype, from the array's header: the arrays may be gigabytes."""
    if key not in arrays.files:
        raise ArrnError(f"{file} has no {key!r}; its keys are {', '.join(arrays.files) or 'none'}")
    try:
        with arrays.zip.open(f"{key}.npy") as stream:
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(stream)
    except (KeyError, OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ArrnError(f"{file}: {key} cannot be read: {str(error).splitlines()[0]}") from None
    return shape, dtype


def _labels(arrays: Any, split: str, file: Path) -> torch.Tensor:
    labels = _array(arrays, f"{split}_labels", file)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels):
        raise ArrnError(
            f"{file}: {split}_labels should be whole numbers, one class for each sample, got {labels.dtype} of shape "
            f"{labels.shape}"
        )
    return torch.from_numpy(labels.astype(np.int64))


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


def channels_to_front(sample: Array, channels_last: bool) -> torch.Tensor:
    """A copy of one image or volume, (channels, *grid)."""
    return torch.from_numpy((np.moveaxis(sample, -1, 0) if channels_last else sample[None]).copy())
