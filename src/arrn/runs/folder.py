"""One process at a time for each run: two would write over each other's checkpoints."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from arrn.errors import ArrnError, RunError
from arrn.runs.settings import RUN_FILE, RunSettings, read_settings
from arrn.saving import CONFIG, WEIGHTS
from arrn.training.log import read_log
from arrn.writing import is_leftover, remove_leftovers

try:
    import fcntl
except ImportError:  # Windows, where nothing is locked
    fcntl = None  # type: ignore[assignment]


LOCK = ".lock"
"""The file in a folder that is worked on."""

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)  # file systems of clusters, mounted without


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Holds a lock on `file`, made if need be; it goes with the process, however that ends.

    Raises:
        RunError: when another process holds it.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with _open_locked(file):
        yield


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Holds a lock on a folder that is there, by a file in it that is gone in the end.

    A process that is killed leaves the file, but not the lock.

    Raises:
        RunError: when another process holds it.
    """
    file = folder / LOCK
    with _open_locked(file):
        try:
            yield
        finally:
            with suppress(OSError):  # a file that is open stays, on Windows
                file.unlink()


def _open_locked(file: Path) -> BinaryIO:
    while True:
        opened = file.open("ab")
        try:
            if fcntl is not None:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            opened.close()
            raise RunError(f"another process is at work on this run: it holds {file}") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                opened.close()
                raise
        if _is_at(file, opened):
            return opened
        opened.close()  # who held it has just removed it: a lock on it would keep nobody out


def _is_at(file: Path, opened: BinaryIO) -> bool:
    try:
        return os.path.samestat(file.stat(), os.fstat(opened.fileno()))
    except FileNotFoundError:
        return False


CHECKPOINTS, LOG, RECIPE_FILE, BOARD = "checkpoints", "log.jsonl", "recipe.toml", "tensorboard"


def is_finished(out: Path) -> bool:
    """Whether the run in `out` has come to its end."""
    return (out / WEIGHTS).exists() and (out / CONFIG).exists()


@contextmanager
def occupied(out: Path) -> Iterator[None]:
    """Makes the folder if need be and keeps other processes out of it; one made for bad input does not stay.

    Raises:
        ArrnError: where no folder can be.
        RunError: when another process is at work in it.
    """
    was_there = out.exists()
    try:
        with ExitStack() as held:
            try:
                out.mkdir(parents=True, exist_ok=True)
                held.enter_context(locked_folder(out))
            except OSError as error:
                raise ArrnError(f"cannot use {out}: {error.strerror or error}") from error
            yield
    except ArrnError:
        if not was_there:
            with suppress(OSError):  # rmdir removes empty folders only
                out.rmdir()
        raise


@contextmanager
def taken_back_if_wrong(out: Path) -> Iterator[None]:
    """Removes what a new run has written of itself, if the input turns out bad before it came to anything."""
    try:
        yield
    except RunError:  # the input was good: the same command, or --resume, may do better later
        raise
    except ArrnError:
        if _came_to_nothing(out) and not (out / BOARD).exists():
            for name in (LOG, RECIPE_FILE, RUN_FILE):
                (out / name).unlink(missing_ok=True)
        raise


def prepare_folder(settings: RunSettings, out: Path, resume: bool, say: Callable[[str], None]) -> bool:
    """Checks the run's folder; False where there is nothing left to do.

    Raises:
        ArrnError: for a folder with anything in it, unless it is this run's and `resume`, or all that is in it is
            what a run was to be that never came to a checkpoint.
    """
    there = _contents(out)
    if there and not resume and not _came_to_nothing(out):
        raise ArrnError(f"{out} is not empty; --resume goes on with the run that is in it, another --out starts anew")
    # A run that was killed before it wrote anything leaves a folder like a new one's.
    if there and resume:
        saved = read_settings(out)
        if saved is None:
            raise ArrnError(f"{out} holds no run ({RUN_FILE} is missing) but other files, such as {there[0]!r}")
        differences = saved.differences(settings)
        if differences:
            raise ArrnError(f"the run in {out} was started otherwise: {'; '.join(differences)}")
        if is_finished(out):
            say(f"the run in {out} is finished")
            return False
    remove_leftovers(out)
    remove_leftovers(out / CHECKPOINTS)
    return True


def _contents(out: Path) -> list[str]:
    try:
        return sorted(path.name for path in out.iterdir() if not is_leftover(path) and path.name != LOCK)
    except OSError as error:
        raise ArrnError(f"cannot use {out}: {error.strerror or error}") from error


def _came_to_nothing(out: Path) -> bool:
    """Whether all there is of a run is what it was to be: no checkpoint, no epoch that took its time."""
    there = set(_contents(out))
    if RUN_FILE not in there or not there <= {RUN_FILE, RECIPE_FILE, LOG, BOARD, CHECKPOINTS}:
        return False
    try:
        ours = read_settings(out) is not None
    except ArrnError:
        ours = False
    begun = CHECKPOINTS in there and any(not is_leftover(path) for path in (out / CHECKPOINTS).iterdir())
    return ours and not begun and not read_log(out / LOG)
