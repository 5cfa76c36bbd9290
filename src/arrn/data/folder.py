"""Images in folders, one folder per class."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import torch

from arrn.data.decoding import decode, header_size
from arrn.data.source import Source
from arrn.data.splits import SPLIT_NAMES
from arrn.errors import ArrnError

__all__ = ["ImageFolder", "find_image_folder", "holds_images"]

IMAGE_SUFFIXES = (
    ".bmp",
    ".gif",
    ".jfif",
    ".jpe",
    ".jpeg",
    ".jpg",
    ".pbm",
    ".pgm",
    ".png",
    ".pnm",
    ".ppm",
    ".tif",
    ".tiff",
    ".webp",
)


class ImageFolder(Source):
    """Images from ROOT/train/CLASS/ and ROOT/test/CLASS/, or from ROOT/CLASS/ where there is no test split.

    The test split may also be called `val`, `valid` or `validation`. The folders of the training split, sorted
    by name, are the classes; images lie at any depth in them. Hidden files and files that are no images by
    their suffix are passed over.

    Args:
        root: the folder that holds the splits, or the classes.
        split: "train" or "test".
        name: the name of the set; by default that of the folder.

    Raises:
        ArrnError: for a missing folder, a class without images, a class that only the test split has, an
            image outside of the class folders.
    """

    def __init__(self, root: str | os.PathLike[str], split: str, name: str | None = None) -> None:
        root = Path(root)
        train, folder = find_image_folder(root, "train"), find_image_folder(root, split)
        if train is None or folder is None:
            raise ArrnError(f"{root} has no {split} split: it should lie in {root / split}, one folder per class")
        class_names = _subfolders(train)
        paths: list[str] = []
        labels: list[int] = []
        for class_name in _subfolders(folder):
            if class_name not in class_names:
                raise ArrnError(f"{folder / class_name} is a class that {train} does not have")
            found = sorted(_images(folder / class_name))
            if not found:
                raise ArrnError(f"{folder / class_name} holds no images: a class needs at least one")
            paths += found
            labels += [class_names.index(class_name)] * len(found)
        if not paths:
            raise ArrnError(f"{folder} holds no class folders")
        _refuse_stray_images(folder)
        super().__init__(name or root.absolute().name, split, class_names, torch.tensor(labels, dtype=torch.int64))
        self._paths = tuple(paths)

    def where(self, index: int) -> str:
        # File names need not be text; an error must be.
        return self._paths[index].encode("utf-8", "backslashreplace").decode()

    def size(self, index: int) -> tuple[int, ...]:
        return header_size(self._paths[index], self.where(index))

    def read(self, index: int) -> torch.Tensor:
        return decode(self._paths[index], self.where(index))


def find_image_folder(root: Path, split: str) -> Path | None:
    """The folder that holds the classes of a split, or None if there is none."""
    folders = _subfolders(root)
    all_splits = set(SPLIT_NAMES["train"] + SPLIT_NAMES["test"])
    if "train" in folders and _subfolders(root / "train"):
        return next((root / name for name in SPLIT_NAMES[split] if name in folders), None)
    if folders and set(folders) <= all_splits:  # else they would be read as classes
        raise ArrnError(f"{root / 'train'} should hold a folder for each class, it has none")
    return root if folders and split == "train" else None


def holds_images(folder: Path) -> bool:
    """Whether there is an image in a folder of `folder`."""
    return any(True for name in _subfolders(folder) for _ in _images(folder / name))


def _subfolders(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not _passed_over(entry.name))
    except OSError as error:
        raise _unreadable(error) from None


def _images(folder: Path) -> Iterator[str]:
    """The images at any depth in a folder; links to folders below it are not followed, lest they go round."""

    def refuse(error: OSError) -> None:
        raise _unreadable(error) from None

    for place, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not _passed_over(name))
        yield from (os.path.join(place, name) for name in files if _is_image(name))


def _refuse_stray_images(folder: Path) -> None:
    stray = sorted(entry.name for entry in os.scandir(folder) if _is_image(entry.name) and not entry.is_dir())
    if stray:
        more = f" (and {len(stray) - 1} more images)" if len(stray) > 1 else ""
        raise ArrnError(f"{folder / stray[0]}{more} lies outside of the class folders of {folder}: move or delete it")


def _is_image(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES) and not _passed_over(name)


def _passed_over(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _unreadable(error: OSError) -> ArrnError:
    return ArrnError(f"cannot read the folder {error.filename}: {error.strerror or error}")
