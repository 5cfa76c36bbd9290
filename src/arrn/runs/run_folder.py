"""The folder of a run: one process at a time in it, what it may hold, and whether it is finished."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from arrn.errors import ArrnError, RunError
from arrn.model_folder import CONFIG, WEIGHTS
from arrn.runs.settings import RUN_FILE, RunSettings, read_run_file, read_settings
from arrn.training.log import read_log
from arrn.writing import is_leftover, remove_leftovers

CHECKPOINTS, LOG, RECIPE_FILE, BOARD = "checkpoints", "log.jsonl", "recipe.toml", "tensorboard"
SKIPPED = "skipped.txt"
"""The file that names the samples that could not be read, a line each."""

FINISHED_EARLY = "finished_early"
"""Where `run.json` says from which checkpoint a run was finished."""

LOCK = ".lock"
"""The file in a folder that a process is at work in."""

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)  # what file systems of clusters say that have none


def is_finished(out: Path) -> bool:
    """Whether the run in `out` has come to its end."""
    return (out / WEIGHTS).exists() and (out / CONFIG).exists()


@contextmanager
def locked(file: Path, patience: float = 0.0) -> Iterator[None]:
    """Holds a lock on a file, made with its folder if need be and removed in the end.

    Another process's lock is waited for, `patience` seconds.

    A process that is killed leaves the file, but not the lock. Where the file system has no locks, nothing is locked:
    with filelock's soft locks, where the file alone is the lock, another machine of a cluster could not resume a run
    that was killed.

    Raises:
        RunError: when another process holds it.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    # Not at once: a file that another process removes between opening and locking takes a second attempt.
    lock = FileLock(file, timeout=max(0.2, patience), fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise RunError(f"another process is at work on this run: it holds {file}") from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    try:
        yield
    finally:
        with suppress(OSError):  # a file that is open stays, on Windows
            file.unlink()  # before the lock is released, when it may already be another process's
        lock.release()


@contextmanager
def occupied(out: Path) -> Iterator[None]:
    """Makes the run's folder if need be and keeps other processes out; one made for bad input does not stay.

    Raises:
        ArrnError: where no folder can be.
        RunError: when another process is at work in it.
    """
    was_there = out.exists()
    try:
        with ExitStack() as held:
            try:
                held.enter_context(locked(out / LOCK))
            except OSError as error:
                raise ArrnError(f"cannot use {out}: {error.strerror or error}") from error
            yield
    except ArrnError:
        if not was_there:
            with suppress(OSError):  # rmdir removes empty folders only
                out.rmdir()
        raise


@contextmanager
def cleared_on_bad_input(out: Path) -> Iterator[None]:
    """Removes what a new run has written of itself, if the input turns out bad before anything came of it."""
    try:
        yield
    except RunError:  # the input was good: the same command, or --resume, may do better later
        raise
    except ArrnError:
        if _came_to_nothing(out) and not (out / BOARD).exists():
            for name in (LOG, RECIPE_FILE, SKIPPED, RUN_FILE):
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
        raise ArrnError(f"{out} is not empty; --resume continues the run that is in it, another --out starts a new run")
    # A run that was killed before it wrote anything leaves a folder like a new one's.
    if there and resume:
        saved = read_settings(out)
        if saved is None:
            raise ArrnError(f"{out} holds no run ({RUN_FILE} is missing) but other files, such as {there[0]!r}")
        differences = saved.differences(settings)
        if differences:
            raise ArrnError(f"the run in {out} was started with other settings: {'; '.join(differences)}")
        if is_finished(out):
            early = FINISHED_EARLY in read_run_file(out)
            say(f"the run in {out} is finished{', early, by arrn finish' if early else ''}")
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
    if RUN_FILE not in there or not there <= {RUN_FILE, RECIPE_FILE, SKIPPED, LOG, BOARD, CHECKPOINTS}:
        return False
    try:
        ours = read_settings(out) is not None
    except ArrnError:
        ours = False
    begun = CHECKPOINTS in there and any(not is_leftover(path) for path in (out / CHECKPOINTS).iterdir())
    return ours and not begun and not read_log(out / LOG)
