"""Where downloads go, and the error for one that fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from arrn.errors import ArrnError

__all__ = ["default_root", "fetched"]


def default_root() -> Path:
    """Where downloads go: ``$XDG_CACHE_HOME/arrn``, by default ``~/.cache/arrn``."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "arrn"


@contextmanager
def fetched(name: str, root: Path) -> Iterator[None]:
    """Around a download: what goes wrong is one line that says what would do instead."""
    try:
        yield
    except (RuntimeError, OSError) as error:  # URLError is an OSError
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ArrnError(
            f"cannot download {name} to {root} ({reason}): "
            "give a folder that holds it with --data ROOT, or train on 'sample', which needs no download"
        ) from error
