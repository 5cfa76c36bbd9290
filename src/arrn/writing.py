"""Files that are written whole or not at all, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

__all__ = ["TEMPORARY", "is_leftover", "remove_leftovers", "write_atomically"]

TEMPORARY = ".arrn-unfinished"
"""How the names of unfinished files end; they begin with a dot."""


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all: temporary file, fsync, rename, fsync of the folder."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=TEMPORARY)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes files that others cannot read
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Makes a rename survive a power failure, where the system knows how to."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_leftover(path: Path) -> bool:
    """Whether a file is what a killed process had not finished writing."""
    return path.name.startswith(".") and path.name.endswith(TEMPORARY)


def remove_leftovers(folder: Path) -> None:
    """Removes what killed processes left unfinished; nothing else in the folder is touched."""
    for path in folder.glob(f".*{TEMPORARY}"):
        with contextlib.suppress(OSError):
            path.unlink()
