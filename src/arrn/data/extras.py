"""Packages that only some sources need, with the error for a missing one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from arrn.errors import ArrnError

__all__ = ["needs"]


@contextmanager
def needs(package: str, what: str) -> Iterator[None]:
    """Around an import: turns a missing package into an error that says how to get it.

    >>> with needs("numpy", "reading pictures"):
    ...     import numpy
    """
    try:
        yield
    except ImportError as error:
        # A package that is there but broken is another matter, with a message of its own.
        if isinstance(error, ModuleNotFoundError):
            raise ArrnError(f"{what} needs {package}: pip install 'arrn[train]'") from None
        raise ArrnError(f"{what} needs {package}, which does not import: {error}") from error
