"""The files of a published set, in its folder or still in its zip archive."""

from __future__ import annotations

import os
import threading
import zipfile
from pathlib import Path
from typing import Protocol

from arrn.errors import ArrnError

__all__ = ["Files", "FolderFiles", "ZipFiles"]


class Files(Protocol):
    """Files by their names below a top folder, with `/` between. Pickles."""

    def where(self, name: str) -> str:
        """What an error calls the file."""

    def read(self, name: str) -> bytes:
        """Its bytes; a `FileNotFoundError` where there is none."""

    def names(self) -> list[str]:
        """Every file, sorted."""


class FolderFiles:
    """Files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def where(self, name: str) -> str:
        return str(self.folder / name)

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def names(self) -> list[str]:
        found = ((Path(place), files) for place, _, files in os.walk(self.folder))
        return sorted((place / file).relative_to(self.folder).as_posix() for place, files in found for file in files)


class ZipFiles:
    """Files in a zip archive, read without unpacking it.

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
        try:
            return self._archive().read(f"{self.top}/{name}")
        except KeyError:
            raise FileNotFoundError(self.where(name)) from None

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
                except (OSError, zipfile.BadZipFile) as error:
                    raise ArrnError(f"{self.file} is truncated or not a zip archive: {error}") from None
            return self._open

    def __reduce__(self) -> tuple[type[ZipFiles], tuple[Path, str]]:
        return type(self), (self.file, self.top)
