"""STL10 as its authors publish it: binary files of 96x96 images. Only the labelled splits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from arrn.data.downloading import fetched
from arrn.data.extras import needs
from arrn.data.source import Source
from arrn.errors import ArrnError

__all__ = ["Stl10Binary", "download_stl10", "find_stl10"]

FOLDER = "stl10_binary"
SHAPE = (3, 96, 96)
CLASSES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")


class Stl10Binary(Source):
    """A labelled split of STL10, 5,000 training or 8,000 test images of 96x96, mapped into memory.

    Args:
        folder: the one that holds `train_X.bin` and the others.
        split: "train" or "test".
        name: the name of the set.
    """

    def __init__(self, folder: str | os.PathLike[str], split: str, name: str = "stl10") -> None:
        self.file = Path(folder) / f"{split}_X.bin"
        labels_file = self.file.with_name(f"{split}_y.bin")
        for file in (self.file, labels_file):
            if not file.is_file():
                raise ArrnError(f"{file} is missing")
        labels = torch.from_numpy(np.fromfile(labels_file, np.uint8).astype(np.int64)) - 1  # they count from 1
        found, expected = self.file.stat().st_size, len(labels) * int(np.prod(SHAPE))
        if found != expected or not len(labels):
            raise ArrnError(
                f"{self.file} has {found:,} bytes, but the {len(labels)} labels beside it ask for {expected:,}"
            )
        names = self.file.with_name("class_names.txt")
        class_names = tuple(names.read_text().split()) if names.is_file() else CLASSES
        super().__init__(name, split, class_names, labels)
        self._images: np.ndarray[Any, Any] | None = None

    def where(self, index: int) -> str:
        return f"{self.file} image {index}"

    def size(self, index: int) -> tuple[int, ...]:
        return SHAPE[1:]

    def read(self, index: int) -> torch.Tensor:
        self.check_label(index)
        if self._images is None:
            self._images = np.memmap(self.file, np.uint8, "r").reshape(-1, *SHAPE)
        return torch.from_numpy(self._images[index].transpose(0, 2, 1).copy())  # stored column by column

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_images": None}  # a worker process maps the file itself


def find_stl10(root: Path) -> Path | None:
    """The folder of the binary files, `root` or its `stl10_binary`."""
    return next((folder for folder in (root, root / FOLDER) if (folder / "train_X.bin").is_file()), None)


def download_stl10(root: Path) -> Path:
    """Fetches the published archive (2.6 GB, its MD5 sum compared) through torchvision; the folder of its files."""
    with needs("torchvision", "downloading stl10"):
        from torchvision import datasets
    with fetched("stl10", root):
        datasets.STL10(root, split="test", download=True)
    return root / FOLDER
