"""`log.jsonl`: one line of JSON for each epoch, and TensorBoard beside it where it is installed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from arrn.errors import RunError, needs
from arrn.reading import open_regular, parse_json
from arrn.writing import write_atomically

MOST_ENTRIES = 10**6  # as many as a recipe may have epochs
_LONGEST_LINE = 2**16
_NUMBERS = ("loss", "accuracy", "seconds")


def read_log(path: Path) -> list[dict[str, Any]]:
    """The entries of a log, up to the first line that is none: a crash may have cut off the last one.

    Raises:
        OSError: for a file that cannot be read, or is no regular file.
    """
    entries: list[dict[str, Any]] = []
    if not path.exists():
        return entries
    with open_regular(path) as file:
        while len(entries) < MOST_ENTRIES and (line := file.readline(_LONGEST_LINE)):
            try:
                entry = parse_json(line.decode("utf-8", "replace"))
            except ValueError:
                break
            if not _is_entry(entry):
                break
            entries.append(entry)
    return entries


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, dict) or type(entry.get("epoch")) is not int or entry["epoch"] < 1:
        return False
    return all(isinstance(entry.get(name, 0), int | float) and math.isfinite(entry.get(name, 0)) for name in _NUMBERS)


def check_tensorboard() -> None:
    """Raises an `ArrnError` where TensorBoard is not installed; to be asked before anything is written."""
    with needs("tensorboard", "--tensorboard", extra="tensorboard"):
        import torch.utils.tensorboard  # noqa: F401


class Log:
    """Appends to the log; entries after the epoch that a run resumes from are taken back.

    Args:
        path: of `log.jsonl`.
        epochs: how many epochs are done; later entries are removed, since they will be written again.
        tensorboard: a folder for TensorBoard's files, or None.
        writes: False for a process whose leader writes; the files are left alone.
    """

    def __init__(self, path: Path, epochs: int = 0, tensorboard: Path | None = None, writes: bool = True) -> None:
        self.path = path
        self._board = None
        if not writes:
            return
        try:
            kept = [entry for entry in read_log(path) if entry["epoch"] <= epochs]
            write_atomically(path, "".join(json.dumps(entry) + "\n" for entry in kept).encode())
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror or error}") from error
        if tensorboard is not None:
            check_tensorboard()
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(tensorboard), purge_step=epochs + 1)

    def write(self, entry: Mapping[str, Any]) -> None:
        """Adds an entry; it has at least "epoch"."""
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(dict(entry)) + "\n")
                file.flush()
                os.fsync(file.fileno())  # before the checkpoint that says the epoch is done
        except OSError as error:
            raise RunError(
                f"cannot write {self.path}: {error.strerror or error}; make room and go on with --resume"
            ) from error
        if self._board is not None:
            for name, value in entry.items():
                if name != "epoch" and isinstance(value, int | float):
                    self._board.add_scalar(name, value, entry["epoch"])
            self._board.flush()

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._board is not None:
            self._board.close()
