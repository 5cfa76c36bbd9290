"""JSON files that say what they are: a format, its version, and the arrn that wrote them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arrn import __version__
from arrn.errors import ArrnError
from arrn.writing import write_atomically

__all__ = ["read_document", "write_document"]


def write_document(path: Path, kind: str, version: int, content: Mapping[str, Any]) -> None:
    """Writes a document of the format `kind`, whole or not at all."""
    document = {"format": kind, "format_version": version, "arrn_version": __version__, **content}
    write_atomically(path, (json.dumps(document, indent=2) + "\n").encode())


def read_document(path: Path, kind: str, version: int) -> dict[str, Any]:
    """Reads a document of the format `kind`, up to `version`.

    Raises:
        ArrnError: for a file that is missing, no JSON, of another format, or from a newer arrn.
    """
    try:
        document = json.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise ArrnError(f"{path} is missing") from None
    except OSError as error:
        raise ArrnError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ArrnError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != kind:
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
