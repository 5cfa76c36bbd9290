"""The folder of a run: empty at first, then with what it takes to go on, in the end with the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from arrn.errors import ArrnError
from arrn.experiments.settings import RUN_FILE, RunSettings, read_settings
from arrn.saving import CONFIG, WEIGHTS
from arrn.writing import is_leftover, remove_leftovers

__all__ = ["CHECKPOINTS", "LOG", "is_finished", "prepare_folder", "removed_if_empty"]

CHECKPOINTS, LOG = "checkpoints", "log.jsonl"


def is_finished(out: Path) -> bool:
    """Whether the run in `out` has come to its end."""
    return (out / WEIGHTS).exists() and (out / CONFIG).exists()


@contextmanager
def removed_if_empty(out: Path) -> Iterator[None]:
    """Takes away the folder that was made within, if the input turns out bad before anything is written to it."""
    was_there = out.exists()
    try:
        yield
    except ArrnError:
        if not was_there:
            with suppress(OSError):  # rmdir removes empty folders only
                out.rmdir()
        raise


def prepare_folder(settings: RunSettings, out: Path, resume: bool, say: Callable[[str], None]) -> bool:
    """Makes or checks the run's folder; False where there is nothing left to do.

    Raises:
        ArrnError: for a folder with anything in it, unless it is this run's and `resume`.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        there = sorted(path.name for path in out.iterdir() if not is_leftover(path))
    except OSError as error:
        raise ArrnError(f"cannot use {out}: {error.strerror or error}") from error
    if there and not resume:
        raise ArrnError(f"{out} is not empty; --resume goes on with the run that is in it, another --out starts anew")
    # A run that was killed before it wrote anything leaves a folder like a new one's.
    if there:
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
