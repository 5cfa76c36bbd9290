"""TinyImageNet as it is published, in its folder or still in its zip archive."""

from __future__ import annotations

import os
import threading
import zipfile
from collections import Counter
from pathlib import Path
from typing import TypeAlias

import torch

from arrn.data.bounds import check_unpacked
from arrn.data.decoding import decode, header_size
from arrn.data.published import downloading
from arrn.data.source import BadSample, Source
from arrn.errors import ArrnError, first_line, needs
from arrn.reading import open_regular

_TOP = "tiny-imagenet-200"
_ARCHIVE = f"{_TOP}.zip"
_URL = f"http://cs231n.stanford.edu/{_ARCHIVE}"
_MD5 = "90528d7ca1a48142e341f4ef8d21d0de"
_ANNOTATIONS = "val/val_annotations.txt"


class TinyImageNet(Source):
    """A split of TinyImageNet. The validation split serves as the test split, since the published one has no labels.

    Args:
        files: the published folder, or the published archive.
        split: "train" or "test".
        name: the name of the set.
    """

    def __init__(self, files: Files, split: str, name: str = "tinyimagenet") -> None:
        train = [path for path in files.names() if _is_training_image(path)]
        wnids = sorted({_wnid(path) for path in train})
        if not wnids:
            raise ArrnError(f"{files.where('train')} should hold WNID/images/*.JPEG for each class, it has none")
        if split == "train":
            paths, classes = train, [_wnid(path) for path in train]
        else:
            paths, classes = _annotated(files, wnids)
        numbers = {wnid: number for number, wnid in enumerate(wnids)}
        labels = [numbers[wnid] for wnid in classes]
        super().__init__(name, split, _class_names(files, wnids), torch.tensor(labels, dtype=torch.int64))
        self._files, self._paths = files, tuple(paths)

    def where(self, index: int) -> str:
        return self._files.where(self._paths[index])

    def size(self, index: int) -> tuple[int, ...]:
        return header_size(self._encoded(index), self.where(index))

    def read(self, index: int) -> torch.Tensor:
        return decode(self._encoded(index), self.where(index))

    def _encoded(self, index: int) -> bytes:
        try:
            return self._files.read(self._paths[index])
        except FileNotFoundError:
            raise BadSample(self.where(index), "no such file") from None
        except OSError as error:
            raise BadSample(self.where(index), f"cannot be read: {error.strerror or error}") from None


def find_tinyimagenet(root: Path) -> Files | None:
    """Its files: in `root`, in ROOT/tiny-imagenet-200, or in the published archive, `root` itself or in it."""
    for folder in (root, root / _TOP):
        if (folder / _ANNOTATIONS).is_file():
            return FolderFiles(folder)
    archive = root if root.suffix == ".zip" else root / _ARCHIVE
    return ZipFiles(archive, _TOP) if archive.is_file() else None


def download_tinyimagenet(root: Path) -> Files:
    """Fetches the published archive (248 MB, its MD5 sum compared); it is read as it is, not unpacked."""
    with needs("torchvision", "downloading tinyimagenet"):
        from torchvision.datasets import utils
    with downloading("tinyimagenet", root):
        utils.download_url(_URL, str(root), _ARCHIVE, _MD5)
    return ZipFiles(root / _ARCHIVE, _TOP)


def _is_training_image(path: str) -> bool:
    parts = path.split("/")
    return len(parts) == 4 and parts[0] == "train" and parts[2] == "images" and path.lower().endswith((".jpeg", ".jpg"))


def _wnid(path: str) -> str:
    return path.split("/")[1]


def _annotated(files: Files, wnids: list[str]) -> tuple[list[str], list[str]]:
    """The images that the annotations list, and their classes: `val_0.JPEG`, a tab, the WNID, the bounding box."""
    where = files.where(_ANNOTATIONS)
    try:
        lines = files.read(_ANNOTATIONS).decode().splitlines()
    except (OSError, UnicodeDecodeError):
        raise ArrnError(f"{where} is missing or not a text: it should list the labels of the images") from None
    paths, classes, known = [], [], set(wnids)
    for number, line in enumerate(lines, 1):
        columns = line.split("\t")
        if len(columns) < 2 or columns[1] not in known:
            raise ArrnError(f"{where} line {number} should be an image and one of the classes of train, got {line!r}")
        paths.append(f"val/images/{columns[0]}")
        classes.append(columns[1])
    if not paths:
        raise ArrnError(f"{where} lists no images")
    return paths, classes


def _class_names(files: Files, wnids: list[str]) -> list[str]:
    """The first of the words for each class, with its WNID where two classes share it; the WNID where it has none."""
    try:
        lines = files.read("words.txt").decode(errors="replace").splitlines()
    except OSError:
        return wnids
    words = {wnid: text.split(",")[0].strip() for wnid, _, text in (line.partition("\t") for line in lines)}
    names = [words.get(wnid) or wnid for wnid in wnids]
    counts = Counter(names)
    return [name if counts[name] == 1 else f"{name} ({wnid})" for name, wnid in zip(names, wnids, strict=True)]


class FolderFiles:
    """Files in a folder, by their names below it, with `/` between."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def where(self, name: str) -> str:
        """What an error calls the file."""
        return str(self.folder / name)

    def read(self, name: str) -> bytes:
        """Its bytes; a `FileNotFoundError` where there is none."""
        with open_regular(self.folder / name) as file:
            return file.read()

    def names(self) -> list[str]:
        """Every file, sorted."""
        found = ((Path(place), files) for place, _, files in os.walk(self.folder))
        return sorted((place / file).relative_to(self.folder).as_posix() for place, files in found for file in files)


class ZipFiles:
    """The same for files in a zip archive, which is read without being unpacked. Pickles.

    Args:
        file: the archive.
        top: the folder in it that the names are below.
    """

    def __init__(self, file: Path, top: str) -> None:
        self.file, self.top = file, top
        self._open: zipfile.ZipFile | None = None
        self._owner = 0
        self._lock = threading.Lock()
        self._archive()

    def where(self, name: str) -> str:
        return f"{self.file}/{self.top}/{name}"

    def read(self, name: str) -> bytes:
        archive = self._archive()
        try:
            entry = archive.getinfo(f"{self.top}/{name}")
        except KeyError:
            raise FileNotFoundError(self.where(name)) from None
        check_unpacked(entry.file_size, entry.compress_size, self.where(name))
        try:
            return archive.read(entry)
        except MemoryError:
            raise
        except Exception as error:  # corrupt deflate data, a sum that is not right, a password
            raise BadSample(self.where(name), f"cannot be read: {first_line(error)}") from None

    def names(self) -> list[str]:
        start = f"{self.top}/"
        there = (name for name in self._archive().namelist() if name.startswith(start) and not name.endswith("/"))
        return sorted(name.removeprefix(start) for name in there)

    def _archive(self) -> zipfile.ZipFile:
        with self._lock:
            # A forked process would share the file's position with its parent: each opens its own.
            if self._open is None or self._owner != os.getpid():
                try:
                    self._open, self._owner = zipfile.ZipFile(self.file), os.getpid()
                except Exception as error:  # a damaged archive may bring anything
                    raise ArrnError(f"{self.file} is truncated or not a zip archive: {first_line(error)}") from None
            return self._open

    def __reduce__(self) -> tuple[type[ZipFiles], tuple[Path, str]]:
        return type(self), (self.file, self.top)


Files: TypeAlias = FolderFiles | ZipFiles
