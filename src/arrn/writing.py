"""Files that are written whole or not at all, and JSON documents with a format."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from arrn import __version__
from arrn.errors import ArrnError

TEMPORARY = ".arrn-unfinished"
"""How the names of unfinished files end; they begin with a dot."""


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all: temporary file, fsync, rename, fsync of the folder."""
    if path.is_dir():  # which the rename would tell of the temporary file
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=TEMPORARY)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes files that others cannot read
        rename(Path(temporary), path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def rename(path: Path, new: Path) -> None:
    """Gives a file another name in its folder, in the place of what had that name, for good once this returns."""
    os.replace(path, new)
    _sync_folder(new.parent)


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


@contextlib.contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Around writing a file: makes its folder; what the system refuses is an `ArrnError` that names the file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise ArrnError(f"cannot write {path}: {error.strerror or error}") from error


@contextlib.contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder beside `out` to write into, which takes the place of `out` and of all it held when all went well."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    except OSError as error:
        raise ArrnError(f"cannot write {out}: {error.strerror or error}") from error
    try:
        yield staging
        os.chmod(staging, 0o755)  # mkdtemp makes folders that others cannot read
        old = staging.with_name(f"{staging.name}-old")
        if out.exists():
            os.rename(out, old)
        os.rename(staging, out)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write_document(path: Path, kind: str, version: int, content: Mapping[str, Any]) -> None:
    """Writes a document of the format `kind`, whole or not at all."""
    document = {"format": kind, "format_version": version, "arrn_version": __version__, **content}
    write_atomically(path, (json.dumps(document, indent=2) + "\n").encode())
