"""The files of published data sets as their authors lay them out: CIFAR, STL10, Imagenette, and our sample."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from arrn.data.bounds import check_samples
from arrn.data.source import Source
from arrn.errors import ArrnError, needs

CIFAR_FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}

# What the published archives unpack to, the largest images first.
IMAGENETTE_FOLDERS = ("imagenette2", "imagenette2-320", "imagenette2-160")
SAMPLE_FOLDER = Path(__file__).parent / "sample"
_STL10_FOLDER = "stl10_binary"
_LONGEST_TEXT = 2**20  # bytes
_STL10_SHAPE = (3, 96, 96)
_STL10_CLASSES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
_IMAGENETTE_WORDS = {
    "n01440764": "tench",
    "n02102040": "English springer",
    "n02979186": "cassette player",
    "n03000684": "chain saw",
    "n03028079": "church",
    "n03394916": "French horn",
    "n03417042": "garbage truck",
    "n03425413": "gas pump",
    "n03445777": "golf ball",
    "n03888257": "parachute",
}


def default_root() -> Path:
    """Where downloads go: ``$XDG_CACHE_HOME/arrn``, by default ``~/.cache/arrn``."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "arrn"


@contextmanager
def downloading(name: str, root: Path) -> Iterator[None]:
    """Around a download: turns an error into one line that names what to do instead."""
    try:
        yield
    except (RuntimeError, OSError) as error:  # URLError is an OSError
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ArrnError(
            f"cannot download {name} to {root} ({reason}): if you have its files, name their folder with --data ROOT; "
            "the data set 'sample' needs no download"
        ) from error


class CifarBatches(Source):
    """CIFAR-10 or CIFAR-100 from the published files. All images are 32x32.

    Args:
        kind: "cifar10" or "cifar100".
        root: the folder that holds `cifar-10-batches-py` or `cifar-100-python`.
        split: "train" or "test".
        name: the name of the set; by default the kind.
        download: whether to download the files into `root` if they are missing or incomplete.
    """

    def __init__(
        self, kind: str, root: str | os.PathLike[str], split: str, name: str | None = None, download: bool = False
    ) -> None:
        self.kind, self.root = kind, Path(root)
        published = _load_cifar(kind, self.root, split, download)
        labels = torch.tensor(published.targets, dtype=torch.int64)
        super().__init__(name or kind, split, published.classes, labels)
        self._images: np.ndarray[Any, Any] | None = published.data  # uint8, (N, 32, 32, 3)

    def where(self, index: int) -> str:
        return f"{self.root / CIFAR_FOLDERS[self.kind]} {self.split} image {index}"

    def size(self, index: int) -> tuple[int, ...]:
        return (32, 32)

    def read(self, index: int) -> torch.Tensor:
        if self._images is None:
            self._images = _load_cifar(self.kind, self.root, self.split, download=False).data
        return torch.from_numpy(self._images[index].transpose(2, 0, 1).copy())

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_images": None}  # a worker process reads the files itself


def _load_cifar(kind: str, root: Path, split: str, download: bool) -> Any:
    """torchvision's data set.

    The published files are pickles, which could run any code. torchvision compares the MD5 sum of every one
    with that of the authors' file (`check_integrity`) before it unpickles any; nothing else is ever unpickled.
    """
    with needs("torchvision", f"reading {kind}"):
        from torchvision import datasets
    kinds = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}
    folder = root / CIFAR_FOLDERS[kind]
    with warnings.catch_warnings():
        # The files are of 2009, and numpy has renamed a thing or two since.
        warnings.simplefilter("ignore", np.exceptions.VisibleDeprecationWarning)
        try:
            return kinds[kind](root, train=split == "train", download=False)
        except (RuntimeError, OSError) as error:
            if not download:
                raise ArrnError(
                    f"{folder} is incomplete or corrupt: delete it, and open_dataset({kind!r}) downloads it again"
                ) from error
        with downloading(kind, root):
            return kinds[kind](root, train=split == "train", download=True)


class Stl10Binary(Source):
    """A labelled split of STL10, 5,000 training or 8,000 test images of 96x96, mapped into memory.

    Args:
        folder: the folder that holds `train_X.bin` and the other files.
        split: "train" or "test".
        name: the name of the set.
    """

    def __init__(self, folder: str | os.PathLike[str], split: str, name: str = "stl10") -> None:
        self.file = Path(folder) / f"{split}_X.bin"
        labels_file = self.file.with_name(f"{split}_y.bin")
        for file in (self.file, labels_file):
            if not file.is_file():
                raise ArrnError(f"{file} is missing")
        check_samples(labels_file.stat().st_size, labels_file)
        labels = torch.from_numpy(np.fromfile(labels_file, np.uint8).astype(np.int64)) - 1  # they count from 1
        found, expected = self.file.stat().st_size, len(labels) * int(np.prod(_STL10_SHAPE))
        if found != expected or not len(labels):
            raise ArrnError(
                f"{self.file} has {found:,} bytes, but the {len(labels)} labels beside it need {expected:,}"
            )
        names = self.file.with_name("class_names.txt")
        class_names = tuple(_read_words(names)) if names.is_file() else _STL10_CLASSES
        super().__init__(name, split, class_names, labels)
        self._images: np.ndarray[Any, Any] | None = None

    def where(self, index: int) -> str:
        return f"{self.file} image {index}"

    def size(self, index: int) -> tuple[int, ...]:
        return _STL10_SHAPE[1:]

    def read(self, index: int) -> torch.Tensor:
        self.check_label(index)
        if self._images is None:
            self._images = np.memmap(self.file, np.uint8, "r").reshape(-1, *_STL10_SHAPE)
        return torch.from_numpy(self._images[index].transpose(0, 2, 1).copy())  # stored column by column

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_images": None}  # a worker process maps the file itself


def _read_words(file: Path) -> list[str]:
    if file.stat().st_size > _LONGEST_TEXT:
        size = file.stat().st_size
        raise ArrnError(
            f"{file} is too large for the names of 10 classes: {size:,} bytes; the limit is {_LONGEST_TEXT:,}"
        )
    return file.read_text("utf-8", "replace").split()


def find_stl10(root: Path) -> Path | None:
    """The folder of the binary files, `root` or its `stl10_binary`."""
    return next((folder for folder in (root, root / _STL10_FOLDER) if (folder / "train_X.bin").is_file()), None)


def download_stl10(root: Path) -> Path:
    """Fetches the published archive (2.6 GB, its MD5 sum compared) through torchvision; the folder of its files."""
    with needs("torchvision", "downloading stl10"):
        from torchvision import datasets
    with downloading("stl10", root):
        datasets.STL10(root, split="test", download=True)
    return root / _STL10_FOLDER


def imagenette_words(class_names: Sequence[str]) -> tuple[str, ...]:
    """Words in the place of WordNet's numbers; other names are left as they are.

    >>> imagenette_words(["n01440764", "cat"])
    ('tench', 'cat')
    """
    return tuple(_IMAGENETTE_WORDS.get(name, name) for name in class_names)
