"""Files that are named on a command line, and what is told of each."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import ArrnError
from .answers import Answer
from .files import BadSample
from .signals import SUFFIXES


def find_inputs(given: Sequence[str], ndim: int) -> Iterator[tuple[str, Path | ArrnError]]:
    """The files that are meant, by name: those of folders and of patterns that no shell has replaced, in order.

    Args:
        given: files, folders and patterns.
        ndim: axes of space of the network's signals, which say what files of a folder are taken.

    Yields:
        A name, and the file or why there is none.
    """
    endings = SUFFIXES[ndim]
    for name in given:
        files: list[str] = []
        if os.path.isdir(name):
            files = sorted(_files_below(name, endings))
            if not files:
                kinds = ", ".join(endings)
                yield name, BadSample(name, f"the folder has no files that the network reads ({kinds})")
        elif glob.has_magic(name) and not os.path.lexists(name):
            found = sorted(file for file in glob.glob(name, recursive=True) if not os.path.isdir(file))
            files = found or [name]  # as shells do; reading says that there is no such file
        else:
            files = [name]
        for file in files:
            yield file, Path(file)


def _files_below(folder: str, endings: tuple[str, ...]) -> Iterator[str]:
    """Files with one of the endings; hidden ones, and what links lead to other folders, are left out."""
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (
            os.path.join(place, name) for name in files if name.lower().endswith(endings) and not name.startswith(".")
        )


def why(error: ArrnError) -> str:
    """What is wrong with an input, without its name.

    >>> why(BadSample("cat.png", "no such file"))
    'no such file'
    """
    return error.reason if isinstance(error, BadSample) else str(error)


def answers_to_json(told: Iterable[tuple[str, Answer | ArrnError]]) -> list[dict[str, Any]]:
    """For each name, its answer or its error, as data that JSON holds."""
    return [
        {"file": name, "error": why(answer)} if isinstance(answer, ArrnError) else {"file": name} | answer.to_json()
        for name, answer in told
    ]
