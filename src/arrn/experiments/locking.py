"""One process at a time for each run: two would write over each other's checkpoints."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from arrn.errors import RunError

try:
    import fcntl
except ImportError:  # Windows, where nothing is locked
    fcntl = None  # type: ignore[assignment]

__all__ = ["LOCK", "locked", "locked_folder"]

LOCK = ".lock"
"""The file in a folder that is worked on."""

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)  # file systems of clusters, mounted without


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Holds a lock on `file`, made if need be; it goes with the process, however that ends.

    Raises:
        RunError: when another process holds it.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with _open_locked(file):
        yield


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Holds a lock on a folder that is there, by a file in it that is gone in the end.

    A process that is killed leaves the file, but not the lock.

    Raises:
        RunError: when another process holds it.
    """
    file = folder / LOCK
    with _open_locked(file):
        try:
            yield
        finally:
            with suppress(OSError):  # a file that is open stays, on Windows
                file.unlink()


def _open_locked(file: Path) -> BinaryIO:
    while True:
        opened = file.open("ab")
        try:
            if fcntl is not None:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            opened.close()
            raise RunError(f"another process is at work on this run: it holds {file}") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                opened.close()
                raise
        if _is_at(file, opened):
            return opened
        opened.close()  # who held it has just removed it: a lock on it would keep nobody out


def _is_at(file: Path, opened: BinaryIO) -> bool:
    try:
        return os.path.samestat(file.stat(), os.fstat(opened.fileno()))
    except FileNotFoundError:
        return False
