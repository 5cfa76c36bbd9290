"""Files that someone else may have written: regular files only, of a bounded size; JSON and TOML of bounded depth."""

from __future__ import annotations

import errno
import json
import os
import stat
import tomllib
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from typing import Any

from . import __version__
from .errors import ArrnError

LARGEST_DOCUMENT = 2**24
"""The bytes of a JSON or TOML file, at most: 16 MiB, from which parsers make up to 400 MB of lists."""

DEEPEST_DOCUMENT = 64
"""How deep lists and tables may lie in one another in a document."""

_LARGEST_NUMBER = 2**63  # what TOML, and most readers of JSON, hold


def open_regular(path: Path) -> BufferedReader:
    """Opens a file to read, if it is a regular file (or a link to one).

    A FIFO would be waited for, and a device may have no end.

    Raises:
        OSError: for what is no regular file, and for what the system refuses; a missing file is a `FileNotFoundError`.
    """
    # Opened without waiting, and looked at through what was opened: nobody can put another file there in between.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, f"it is {_kind(mode)}, and should be a regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _kind(mode: int) -> str:
    kinds: dict[Callable[[int], bool], str] = {
        stat.S_ISDIR: "a folder",
        stat.S_ISFIFO: "a FIFO",
        stat.S_ISSOCK: "a socket",
        stat.S_ISCHR: "a device",
        stat.S_ISBLK: "a device",
    }
    return next((word for holds, word in kinds.items() if holds(mode)), "no file")


def check_regular(path: Path) -> None:
    """Refuses what is no regular file, before a library opens it by its name; raises as `open_regular` does."""
    open_regular(path).close()


def read_bytes(path: Path, most: int = LARGEST_DOCUMENT) -> bytes:
    """The content of a regular file of at most `most` bytes.

    Raises:
        OSError: for one that is larger, and as `open_regular` does.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(most + 1) if size <= most else b""
    if size > most or len(content) > most:
        found = f"it has {max(size, len(content)):,} bytes, and should have {most:,} at most"
        raise OSError(errno.EFBIG, found, str(path))
    return content


def read_json(path: Path) -> Any:
    """The value in a JSON file, which holds no number beyond 64 bits and is not nested deeper than `DEEPEST_DOCUMENT`.

    Raises:
        ArrnError: for what is no JSON, or beyond those bounds.
        OSError: as `read_bytes` does.
    """
    return _parse(path, json.loads, "JSON")


def read_toml(path: Path) -> dict[str, Any]:
    """The table in a TOML file, bounded as those that `read_json` reads.

    Raises:
        ArrnError: for what is no TOML, or beyond those bounds.
        OSError: as `read_bytes` does.
    """
    table: dict[str, Any] = _parse(path, tomllib.loads, "TOML")
    return table


def parse_json(text: str) -> Any:
    """The value of a text of JSON, bounded as those that `read_json` reads.

    >>> parse_json('{"a": [1, 2]}')
    {'a': [1, 2]}

    Raises:
        ValueError: for what is no JSON or beyond the bounds.
    """
    return _bounded(json.loads, text)


def read_document(path: Path, kind: str, version: int) -> dict[str, Any]:
    """Reads a document of the format `kind`, up to `version`.

    Raises:
        ArrnError: for a file that is missing, no regular file, no JSON, of another format, or from a newer arrn.
    """
    try:
        document = read_json(path)
    except FileNotFoundError:
        raise ArrnError(f"{path} is missing") from None
    except OSError as error:
        raise ArrnError(f"cannot read {path}: {error.strerror or error}") from error
    # Some formats were once written with a space in the place of the hyphen.
    if not isinstance(document, dict) or str(document.get("format")).replace(" ", "-") != kind:
        raise ArrnError(f'{path} is not what it should be: it should say "format": "{kind}"')
    found = document.get("format_version")
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise ArrnError(f"{path}: format_version must be a whole number from 1 on, got {found!r}")
    if found > version:
        raise ArrnError(
            f"{path} has format version {found}, written by arrn {document.get('arrn_version')}; this arrn "
            f"{__version__} reads up to {version}: upgrade arrn"
        )
    return document


def _parse(path: Path, parse: Callable[[str], Any], language: str) -> Any:
    content = read_bytes(path)
    try:
        return _bounded(parse, content.decode("utf-8"))
    except ValueError as error:
        raise ArrnError(f"{path} is not valid {language}: {error}") from None


def _bounded(parse: Callable[[str], Any], text: str) -> Any:
    try:
        value = parse(text)
    except RecursionError:
        raise _too_deep() from None
    level: list[Any] = [value]
    for _ in range(DEEPEST_DOCUMENT + 1):
        for item in level:
            if isinstance(item, int) and not -_LARGEST_NUMBER <= item < _LARGEST_NUMBER:
                raise ValueError(f"a whole number of {item.bit_length()} bits, and at most 63 are read")
        lists = (item for item in level if isinstance(item, list))
        tables = (item.values() for item in level if isinstance(item, dict))
        level = [inner for items in (*lists, *tables) for inner in items]
        if not level:
            return value
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"it is nested more than {DEEPEST_DOCUMENT} levels deep")
