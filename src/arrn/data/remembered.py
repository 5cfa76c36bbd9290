"""What reading a whole file has shown, kept for later runs, until the file changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from arrn import __version__
from arrn.data.published import default_root
from arrn.data.storage import StoredFile, is_remote
from arrn.errors import ArrnError
from arrn.reading import read_document
from arrn.writing import write_document

_FORMAT, _VERSION = "arrn-seen", 1
_LARGE = 2**24  # bytes of a file; smaller ones on disk are read again as quickly as what they have shown


class Remembered:
    """What was seen of a file in a store, or of a large one on disk; nothing is kept of others.

    Args:
        file: that was read.
        how: what else the result depends on, as JSON has it.
    """

    def __init__(self, file: StoredFile, *how: object) -> None:
        self._place: Path | None = None
        if is_remote(file.address) or file.size >= _LARGE:
            told = json.dumps([__version__, file.address, file.size, file.stamp, *how])
            self._place = default_root() / "seen" / f"{hashlib.sha256(told.encode()).hexdigest()}.json"

    def recall(self) -> dict[str, Any] | None:
        """What was kept; None where nothing was, or where it cannot be read."""
        if self._place is not None:
            with suppress(ArrnError, OSError):
                return read_document(self._place, _FORMAT, _VERSION)
        return None

    def keep(self, content: Mapping[str, Any]) -> None:
        """Keeps what was seen. A full disk, or a home that cannot be written, costs another reading the next time."""
        if self._place is not None:
            with suppress(OSError):
                self._place.parent.mkdir(parents=True, exist_ok=True)
                write_document(self._place, _FORMAT, _VERSION, content)
