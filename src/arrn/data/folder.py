"""Files in folders, one folder per class: images, or sound."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import torch

from arrn.data.decoding import PICTURES, Codec
from arrn.data.source import SPLIT_NAMES, Source
from arrn.errors import ArrnError


class ClassFolders(Source):
    """Files from ROOT/train/CLASS/ and ROOT/test/CLASS/, or from ROOT/CLASS/ where there is no test split.

    The folders of the splits have the names in `SPLIT_NAMES`, in upper or lower case. `val`, `valid` or `validation` is
    the test split where there is no other. The folders of the training split, sorted by name, are the classes. Files
    may lie at any depth in them. Hidden files, and files with other suffixes than the codec's, are ignored.

    Args:
        root: the folder that holds the splits, or the classes.
        split: "train", "test" or "validation".
        codec: reads a file.
        name: the name of the set; by default that of the folder.

    Raises:
        ArrnError: for a missing folder, a class without files, a class that only the test split has, a
            file outside of the class folders.
    """

    def __init__(self, root: str | os.PathLike[str], split: str, codec: Codec, name: str | None = None) -> None:
        root = Path(root)
        train, folder = find_class_folder(root, "train"), find_class_folder(root, split)
        if train is None or folder is None:
            raise ArrnError(f"{root} has no {split} split: it should lie in {root / split}, one folder per class")
        class_names, words = _subfolders(train), codec.form.words
        paths: list[str] = []
        labels: list[int] = []
        for class_name in _subfolders(folder):
            if class_name not in class_names:
                raise ArrnError(f"{folder / class_name} is a class that {train} does not have")
            found = sorted(_walk(folder / class_name, codec))
            if not found:
                raise ArrnError(f"{folder / class_name} holds no {words}: a class needs at least one")
            paths += found
            labels += [class_names.index(class_name)] * len(found)
        if not paths:
            raise ArrnError(f"{folder} holds no class folders")
        _refuse_stray_files(folder, codec)
        numbers = torch.tensor(labels, dtype=torch.int64)
        name = name or root.absolute().name
        super().__init__(name, split, class_names, numbers, codec.form, codec.max_pixels)
        self._codec, self._paths = codec, tuple(paths)

    def where(self, index: int) -> str:
        # File names need not be text; an error must be.
        return self._paths[index].encode("utf-8", "backslashreplace").decode()

    def size(self, index: int) -> tuple[int, ...]:
        return self._codec.size(self._paths[index], self.where(index))

    def read(self, index: int) -> torch.Tensor:
        return self._codec.decode(self._paths[index], self.where(index))

    def changes(self, index: int) -> tuple[str, ...]:
        return self._codec.changes(self._paths[index], self.where(index))


class ImageFolder(ClassFolders):
    """Class folders of images."""

    def __init__(self, root: str | os.PathLike[str], split: str, name: str | None = None) -> None:
        super().__init__(root, split, PICTURES, name)


def find_class_folder(root: Path, split: str) -> Path | None:
    """The folder that holds the classes of a split, or None if there is none.

    A validation split is one only beside a test split; alone, it is the test split.
    """
    folders = _subfolders(root)
    found = _split_folders(root, folders)
    train = found.get("train")
    if train is not None and _subfolders(train):
        test, validation = found.get("test"), found.get("validation")
        return {"train": train, "test": test or validation, "validation": validation if test else None}[split]
    all_splits = {name for names in SPLIT_NAMES.values() for name in names}
    if folders and {name.lower() for name in folders} <= all_splits:  # else they would be read as classes
        raise ArrnError(f"{train or root / 'train'} should hold a folder for each class, it has none")
    return root if folders and split == "train" else None


def _split_folders(root: Path, folders: list[str]) -> dict[str, Path]:
    """The folder of each split that is there, by the best of its names; file systems and people differ in capitals."""
    named = {folder.lower(): root / folder for folder in folders}
    return {
        split: next(named[name] for name in names if name in named)
        for split, names in SPLIT_NAMES.items()
        if not named.keys().isdisjoint(names)
    }


def files_in(folder: Path, codec: type[Codec] | Codec) -> Iterator[str]:
    """The files in the folders of `folder` that `codec` reads, as they are found."""
    for name in _subfolders(folder):
        yield from _walk(folder / name, codec)


def _subfolders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            there = [entry for entry in entries if not _passed_over(entry.name) and _is_folder(entry)]
    except OSError as error:
        raise _unreadable(error) from None
    for entry in there:
        if entry.is_symlink() and _holds(target := os.path.realpath(entry), os.path.realpath(folder)):
            raise ArrnError(f"{folder / entry.name} is a link to {target}, the folder around it, and cannot be a class")
    return sorted(entry.name for entry in there)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def _holds(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer.rstrip(os.sep) + os.sep)


def _walk(folder: Path, codec: type[Codec] | Codec) -> Iterator[str]:
    """The files at any depth in a folder; links to folders below it are not followed, lest they go round."""

    def refuse(error: OSError) -> None:
        raise _unreadable(error) from None

    for place, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not _passed_over(name))
        yield from (os.path.join(place, name) for name in sorted(files) if _is_read(name, codec))


def _refuse_stray_files(folder: Path, codec: Codec) -> None:
    with os.scandir(folder) as entries:
        stray = sorted(entry.name for entry in entries if _is_read(entry.name, codec) and not _is_folder(entry))
    if stray:
        more = f" (and {len(stray) - 1} more {codec.form.words})" if len(stray) > 1 else ""
        raise ArrnError(f"{folder / stray[0]}{more} lies beside the class folders of {folder}: move or delete it")


def _is_read(name: str, codec: type[Codec] | Codec) -> bool:
    return name.lower().endswith(codec.suffixes) and not _passed_over(name)


def _passed_over(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _unreadable(error: OSError) -> ArrnError:
    return ArrnError(f"cannot read the folder {error.filename}: {error.strerror or error}")
