"""Data sets by name or by folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from arrn.data.cifar import CIFAR_FOLDERS, CifarBatches, default_root
from arrn.data.folder import ImageFolder, find_image_folder, holds_images
from arrn.data.parquet import ParquetImages
from arrn.data.parquet_layout import find_parquet
from arrn.data.sample import SAMPLE_FOLDER
from arrn.data.source import Source
from arrn.errors import ArrnError, unknown_name

__all__ = ["Dataset", "list_datasets", "open_dataset"]

Splits = tuple[Source, Source | None]

CIFAR10_STATISTICS = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
CIFAR100_STATISTICS = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
PUBLISHED = {"sample": CIFAR10_STATISTICS, "cifar10": CIFAR10_STATISTICS, "cifar100": CIFAR100_STATISTICS}


@dataclass(frozen=True)
class Dataset:
    """A labelled set of images.

    Attributes:
        name: "cifar10", or the name of the folder.
        train, test: its splits; no test split is None.
        mean, std: the published normalisation, one number per channel of images in [0, 1]; None means
            that it is to be measured on `train`.
    """

    name: str
    train: Source
    test: Source | None
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None

    @property
    def class_names(self) -> tuple[str, ...]:
        """A name for each class."""
        return self.train.class_names


def list_datasets() -> list[str]:
    """The names that `open_dataset` knows.

    >>> list_datasets()
    ['cifar10', 'cifar100', 'sample']
    """
    return sorted(PUBLISHED)


def open_dataset(name: str, root: str | os.PathLike[str] | None = None) -> Dataset:
    """Opens a set by name, or the one that lies in a folder.

    Args:
        name: "sample", "cifar10", "cifar100" or the path of a folder; with `root`, any name for what is there.
        root: a folder with parquet files, with images in class folders, or with CIFAR's own files. Where
            "cifar10" or "cifar100" is not found, it is downloaded there, by default to ``~/.cache/arrn``.

    >>> dataset = open_dataset("sample")
    >>> len(dataset.train), len(dataset.test), dataset.train.read(0).shape
    (5000, 1000, torch.Size([3, 32, 32]))
    """
    if root is None and name == "sample":
        root = SAMPLE_FOLDER
    if root is None and name in CIFAR_FOLDERS:
        root = default_root()
    if root is None:
        if not (os.sep in name or name.startswith("~") or Path(name).is_dir()):
            unknown = unknown_name("data set", name, PUBLISHED)
            raise ArrnError(f"{unknown}; for your own, give the path of its folder, or --data ROOT")
        root = Path(name).expanduser()
        name = root.resolve().name
    train, test = _open_splits(name, Path(root).expanduser())
    mean, std = PUBLISHED.get(name, (None, None))
    return Dataset(name, train, test, mean, std)


def _open_splits(name: str, root: Path) -> Splits:
    downloadable = name in CIFAR_FOLDERS
    if root.is_dir():
        splits = _parquet(name, root) or _cifar(name, root) or _image_folder(name, root)
        if splits is not None:
            return splits
    elif not downloadable or root.exists():
        raise ArrnError(f"{root} is {'not a folder' if root.exists() else 'missing'}: it should be the data set's root")
    if downloadable:
        return CifarBatches(name, root, "train", download=True), CifarBatches(name, root, "test", download=True)
    raise ArrnError(
        f"{root} holds no data set of a known layout. Looked for parquet files (train-*.parquet, data/train-*.parquet, "
        "train/*.parquet), images in class folders (train/CLASS/, or CLASS/), "
        f"and CIFAR's files ({', '.join(CIFAR_FOLDERS.values())})"
    )


def _parquet(name: str, root: Path) -> Splits | None:
    train_files = find_parquet(root, "train")
    if not train_files:
        return None
    train = ParquetImages(train_files[0], "train", name)
    tests = [ParquetImages(files, "test", name, train.class_names) for files in find_parquet(root, "test")]
    # Hugging Face gives the test split of a competition with no labels, -1; the validation split stands in.
    labelled = [test for test in tests if bool((test.labels != -1).any())]
    return train, next(iter(labelled or tests), None)


def _cifar(name: str, root: Path) -> Splits | None:
    there = [kind for kind, folder in CIFAR_FOLDERS.items() if (root / folder).is_dir()]
    if (itself := root.resolve()).name in CIFAR_FOLDERS.values():
        there = [kind for kind, folder in CIFAR_FOLDERS.items() if itself.name == folder]
        root = itself.parent
    if name in CIFAR_FOLDERS:
        there = [kind for kind in there if kind == name]
    if len(there) > 1:
        raise ArrnError(f"{root} holds both cifar10 and cifar100: say which one by its name")
    if not there:
        return None
    # Of a known name, a broken copy is repaired by downloading it again.
    kind, download = there[0], name in CIFAR_FOLDERS
    return CifarBatches(kind, root, "train", name, download), CifarBatches(kind, root, "test", name, download)


def _image_folder(name: str, root: Path) -> Splits | None:
    train = find_image_folder(root, "train")
    if train is None or not holds_images(train):
        return None
    test = None if find_image_folder(root, "test") is None else ImageFolder(root, "test", name)
    return ImageFolder(root, "train", name), test
