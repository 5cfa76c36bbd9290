"""What a run was trained on, kept with it: samples that came, went or changed their labels since are noticed."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from arrn.data import Source
from arrn.errors import ArrnError
from arrn.experiments.settings import RUN_FILE, read_run_file

__all__ = ["TRAINED_ON", "TrainedOn", "check_trained_on", "describe_samples"]

TRAINED_ON = "trained_on"
"""Where `run.json` has it."""


@dataclass(frozen=True)
class TrainedOn:
    """A training set before anything is held out of it: which samples those are depends on all.

    Attributes:
        class_names: in the order of the labels.
        samples: how many.
        digest: of their names and labels, in order.
    """

    class_names: tuple[str, ...]
    samples: int
    digest: str

    def change(self, now: TrainedOn) -> str | None:
        """How the set that is found `now` differs, in words; None if it does not."""
        before, after = self.class_names, now.class_names
        if len(before) != len(after):
            only = sorted(set(before) ^ set(after))
            return f"it had {len(before)} classes and now has {len(after)} ({only[0]!r} is in one of them only)"
        for number, (was, becomes) in enumerate(zip(before, after, strict=True)):
            if was != becomes:
                return f"class {number} was {was!r} and is now {becomes!r}"
        if self.samples != now.samples:
            return f"it had {self.samples} samples and now has {now.samples}"
        if self.digest != now.digest:
            return f"it still has {self.samples} samples, but not the same names and labels in the same order"
        return None


def describe_samples(source: Source) -> TrainedOn:
    """What a run writes down of its training set: no sample is read, and where the set lies does not matter."""
    names = [source.where(index) for index in range(len(source))]
    place = os.path.commonprefix(names)  # noqa: RUF071  # much faster than commonpath, and cut at a separator next
    start = place.rfind(os.sep) + 1
    digest = hashlib.sha256(source.labels.numpy().astype("<i8").tobytes())
    for name in names:
        digest.update(name[start:].encode("utf-8", "backslashreplace") + b"\0")
    return TrainedOn(source.class_names, len(source), digest.hexdigest())


def check_trained_on(run: Path, now: TrainedOn) -> None:
    """Refuses a training set, as it is `now`, that is not the one of the run in the folder `run`.

    Runs from before it was written down pass.

    Raises:
        ArrnError: with what changed.
    """
    before = _read(run)
    change = None if before is None else before.change(now)
    if change is not None:
        raise ArrnError(f"the training set is not the one that the run in {run} was trained on: {change}")


def _read(run: Path) -> TrainedOn | None:
    found = read_run_file(run).get(TRAINED_ON)
    if found is None:
        return None
    try:
        names, samples, digest = found["class_names"], found["samples"], found["digest"]
    except (TypeError, KeyError):
        names = samples = digest = None
    if not isinstance(names, list) or not isinstance(samples, int) or not isinstance(digest, str):
        raise ArrnError(f"{run / RUN_FILE}: {TRAINED_ON} should have class_names, samples and digest, got {found!r}")
    return TrainedOn(tuple(map(str, names)), samples, digest)
