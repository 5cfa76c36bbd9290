"""The samples of a run, split by split, and what it was trained on, so that a set that changed since is noticed."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from arrn.data import (
    BadSample,
    Dataset,
    Examined,
    Order,
    Selection,
    Source,
    Window,
    Windows,
    examine,
    hold_out,
    is_remote,
    open_dataset,
)
from arrn.data.epochs import derive_seed
from arrn.errors import ArrnError, unknown_name
from arrn.runs.settings import RUN_FILE, RunSettings, read_run_file

SPLITS = ("test", "validation", "train")

TRAINED_ON, ORDER = "trained_on", "order"
"""Where `run.json` has them."""

_MOST_LANES = 2**16


@dataclass(frozen=True)
class RunData:
    """The samples of a run, looked over.

    Attributes:
        dataset: what was opened.
        whole: the training set before anything was held out.
        train: what is trained on.
        validation: what was held out of the training set, or else the set's own validation split, if any.
        bad: the samples that could not be read, of the training set and of its own validation split.
        remarks: what a user should know of how they were read, a line each.
    """

    dataset: Dataset
    whole: Source
    train: Examined
    validation: Examined | None
    bad: tuple[BadSample, ...]
    remarks: tuple[str, ...]

    @property
    def splits(self) -> list[str]:
        """Those of `SPLITS` that a network can be evaluated on."""
        missing = {"test": self.dataset.test, "validation": self.validation}
        return [split for split in SPLITS if missing.get(split, self.train) is not None]


def open_run_data(
    settings: RunSettings, progress: Callable[[int, int], None] | None = None, max_pixels: int | None = None
) -> RunData:
    """Opens the training set, looks at every sample, and holds out or opens the validation split.

    Args:
        settings: of the run.
        progress: told how many samples of the training set were looked at, and how many there are.
        max_pixels: of an image, or voxels of a volume; more are refused. None is 64 million.
    """
    dataset = _open(settings, max_pixels)
    if settings.keep == "best" and not settings.holdout and dataset.validation is None:
        raise ArrnError(
            "to keep the best epoch, samples must be held out: --holdout N, or a validation split of the set"
        )
    # Whole images where bad ones are to be skipped: a header does not tell that an image is cut short.
    total = len(dataset.train)
    tell = None if progress is None else lambda done: progress(done, total)
    examined = examine(dataset.train, settings.skip_bad, decode=settings.skip_bad, progress=tell)
    train, validation, bad = examined, None, examined.bad
    if settings.holdout:
        parts = hold_out(examined.source, settings.holdout, derive_seed(settings.seed, "holdout"))
        train, validation = (_examined(part, examined) for part in parts)
    elif dataset.validation is not None:
        validation = examine(dataset.validation, settings.skip_bad, decode=settings.skip_bad)
        bad += validation.bad
    remarks = [*([dataset.remark] if dataset.remark else []), *examined.remarks]
    return RunData(dataset, examined.source, train, validation, bad, tuple(remarks))


def open_split(settings: RunSettings, split: str, run: Path | None = None, max_pixels: int | None = None) -> Examined:
    """The samples of one split of a run's data set: "test", or "validation" and "train" as the run had them.

    Args:
        settings: of the run.
        split: one of `SPLITS`.
        run: the run's folder; what is drawn from another training set than its own is refused.
        max_pixels: of an image, or voxels of a volume; more are refused. None is 64 million.
    """
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    if split == "test":
        test = _open(settings, max_pixels).test
        if test is None:
            raise ArrnError(
                f"the data set {settings.dataset!r} has no test split; train with --holdout N and evaluate with "
                "--split validation"
            )
        return examine(test, settings.skip_bad, decode=settings.skip_bad)
    data = open_run_data(dataclasses.replace(settings, keep="last"), max_pixels=max_pixels)
    if run is not None and (split == "train" or settings.holdout):
        check_trained_on(run, describe_samples(data.whole))
    if split == "train":
        return data.train
    if data.validation is None:
        if run is None:
            raise ArrnError(
                f"the data set {settings.dataset!r} has no validation split: give --dataset a folder with train, val "
                "and test; if the run held samples out, leave out --dataset"
            )
        raise ArrnError("this run held out no samples, so it has no validation split: train with --holdout N")
    return data.validation


def _open(settings: RunSettings, max_pixels: int | None) -> Dataset:
    window = Window(settings.window, settings.sample_rate)
    return open_dataset(settings.dataset, settings.data, window, max_pixels)


def _examined(part: Source, whole: Examined) -> Examined:
    assert isinstance(part, Selection)
    return Examined(part, tuple(whole.sizes[index] for index in part.indices.tolist()), ())


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
            return f"it still has {self.samples} samples, but their names, their labels or their order changed"
        return None


def describe_samples(source: Source) -> TrainedOn:
    """What a run writes down of its training set: no sample is read, and where the set lies does not matter."""

    def names() -> Iterator[str]:  # one after another: of a set that does not fit in memory, all of them may not either
        return map(source.where, range(len(source)))

    place = os.path.commonprefix([min(names()), max(names())])  # noqa: RUF071  # cut at a separator next
    start = place.rfind("/" if is_remote(place) else os.sep) + 1
    digest = hashlib.sha256(source.labels.numpy().astype("<i8").tobytes())
    for name in names():
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


def begun_in_order(run: Path, begun: bool) -> Order | None:
    """How the epochs of a run are shuffled, as `run.json` has it; None where that is still to be decided.

    Args:
        run: the run's folder.
        begun: whether there is a checkpoint.
    """
    if not begun:
        return None
    found = read_run_file(run).get(ORDER, "whole")  # runs from before there was another order do not tell
    if found == "whole":
        return "whole"
    wanted = {"lanes": (1, _MOST_LANES), "window": (0, 2**62)}
    if not isinstance(found, dict) or set(found) != set(wanted):
        raise ArrnError(f"{run / RUN_FILE}: {ORDER} should have {' and '.join(wanted)}, got {found!r:.80}")
    for name, (least, most) in wanted.items():
        if type(found[name]) is not int or not least <= found[name] <= most:
            raise ArrnError(f"{run / RUN_FILE}: {name} should be from {least} to {most}, got {found[name]!r:.80}")
    return Windows(**found)


def _read(run: Path) -> TrainedOn | None:
    found = read_run_file(run).get(TRAINED_ON)
    if found is None:
        return None
    try:
        names, samples, digest = found["class_names"], found["samples"], found["digest"]
    except (TypeError, KeyError):
        names = samples = digest = None
    distinct = isinstance(names, list) and len(set(map(str, names))) == len(names)
    if not distinct or not isinstance(samples, int) or not isinstance(digest, str):
        wrong = f"{TRAINED_ON} should have class_names, samples and digest, got {found!r:.80}"
        raise ArrnError(f"{run / RUN_FILE}: {wrong}")
    return TrainedOn(tuple(map(str, names)), samples, digest)
