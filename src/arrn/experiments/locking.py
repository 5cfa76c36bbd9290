"""One process at a time for each run: two would write over each other's checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from arrn.errors import RunError

try:
    import fcntl
except ImportError:  # Windows, where nothing is locked
    fcntl = None  # type: ignore[assignment]

__all__ = ["locked"]


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Holds a lock on `file`, made if need be; it goes with the process, however that ends.

    Raises:
        RunError: when another process holds it.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as opened:
        if fcntl is not None:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunError(f"another process is at work on this run: it holds {file}") from None
        yield
