"""Data sets by name or by folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from arrn.data.parquet import ParquetImages
from arrn.data.parquet_layout import find_parquet
from arrn.data.sample import SAMPLE_FOLDER
from arrn.data.source import Source
from arrn.errors import ArrnError

__all__ = ["Dataset", "list_datasets", "open_dataset"]

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
    """The names that `open_dataset` knows."""
    return sorted(PUBLISHED)


def open_dataset(name: str, root: str | os.PathLike[str] | None = None) -> Dataset:
    """Opens a set by name, or the one that lies in a folder.

    >>> dataset = open_dataset("sample")
    >>> len(dataset.train), len(dataset.test), dataset.train.read(0).shape
    (5000, 1000, torch.Size([3, 32, 32]))
    """
    mean, std = PUBLISHED.get(name, (None, None))
    train, test = _open_splits(name, SAMPLE_FOLDER if root is None else Path(root))
    return Dataset(name, train, test, mean, std)


def _open_splits(name: str, root: Path) -> tuple[Source, Source | None]:
    train_files, test_files = find_parquet(root, "train"), find_parquet(root, "test")
    if not train_files:
        raise ArrnError(f"{root} has no parquet files")
    train = ParquetImages(train_files[0], "train", name)
    test = ParquetImages(test_files[0], "test", name, train.class_names) if test_files else None
    return train, test
