"""CIFAR-10 and CIFAR-100 as their authors publish them, through torchvision."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from arrn.data.downloading import fetched
from arrn.data.extras import needs
from arrn.data.source import Source
from arrn.errors import ArrnError

__all__ = ["CIFAR_FOLDERS", "CifarBatches"]

CIFAR_FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}


class CifarBatches(Source):
    """CIFAR-10 or CIFAR-100 from the published files. All images are 32x32.

    Args:
        kind: "cifar10" or "cifar100".
        root: the folder that holds `cifar-10-batches-py` or `cifar-100-python`.
        split: "train" or "test".
        name: the name of the set; by default the kind.
        download: whether to fetch the files into `root` if they are not there whole.
    """

    def __init__(
        self, kind: str, root: str | os.PathLike[str], split: str, name: str | None = None, download: bool = False
    ) -> None:
        self.kind, self.root = kind, Path(root)
        published = _load(kind, self.root, split, download)
        labels = torch.tensor(published.targets, dtype=torch.int64)
        super().__init__(name or kind, split, published.classes, labels)
        self._images: np.ndarray[Any, Any] | None = published.data  # uint8, (N, 32, 32, 3)

    def where(self, index: int) -> str:
        return f"{self.root / CIFAR_FOLDERS[self.kind]} {self.split} image {index}"

    def size(self, index: int) -> tuple[int, ...]:
        return (32, 32)

    def read(self, index: int) -> torch.Tensor:
        if self._images is None:
            self._images = _load(self.kind, self.root, self.split, download=False).data
        return torch.from_numpy(self._images[index].transpose(2, 0, 1).copy())

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_images": None}  # a worker process reads the files itself


def _load(kind: str, root: Path, split: str, download: bool) -> Any:
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
        with fetched(kind, root):
            return kinds[kind](root, train=split == "train", download=True)
