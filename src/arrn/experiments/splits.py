"""The data of a run: which samples it trains on, and which it is judged by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from arrn.data import Dataset, Examined, Selection, Source, Window, examine, hold_out, open_dataset
from arrn.data.seeding import derive_seed
from arrn.errors import ArrnError, unknown_name
from arrn.experiments.settings import RunSettings
from arrn.experiments.trained_on import check_trained_on, describe_samples

__all__ = ["SPLITS", "RunData", "open_run_data", "open_split"]

SPLITS = ("test", "validation", "train")


@dataclass(frozen=True)
class RunData:
    """The samples of a run, looked over.

    Attributes:
        dataset: what was opened.
        whole: the training set before anything was held out.
        train: what is trained on.
        validation: what was held out of the training set, or else the set's own validation split, if any.
        skipped: how many samples could not be read.
        remarks: what a user should know of how they were read, a line each.
    """

    dataset: Dataset
    whole: Source
    train: Examined
    validation: Examined | None
    skipped: int
    remarks: tuple[str, ...]

    @property
    def splits(self) -> list[str]:
        """Those of `SPLITS` that a network can be evaluated on."""
        missing = {"test": self.dataset.test, "validation": self.validation}
        return [split for split in SPLITS if missing.get(split, self.train) is not None]


def open_run_data(settings: RunSettings, progress: Callable[[int, int], None] | None = None) -> RunData:
    """Opens the training set, looks at every sample, and holds out or opens the validation split.

    Args:
        settings: of the run.
        progress: told how many samples of the training set were looked at, and how many there are.
    """
    dataset = _open(settings)
    # Whole images where bad ones are to be skipped: a header does not tell that an image is cut short.
    total = len(dataset.train)
    tell = None if progress is None else lambda done: progress(done, total)
    examined = examine(dataset.train, settings.skip_bad, decode=settings.skip_bad, progress=tell)
    train, validation = examined, None
    if settings.holdout:
        parts = hold_out(examined.source, settings.holdout, derive_seed(settings.seed, "holdout"))
        train, validation = (_examined(part, examined) for part in parts)
    elif dataset.validation is not None:
        validation = examine(dataset.validation, settings.skip_bad, decode=settings.skip_bad)
    remarks = [*([dataset.remark] if dataset.remark else []), *examined.remarks]
    return RunData(dataset, examined.source, train, validation, len(examined.bad), tuple(remarks))


def open_split(settings: RunSettings, split: str, run: Path | None = None) -> Examined:
    """The samples of one split of a run's data set: "test", or "validation" and "train" as the run had them.

    Args:
        settings: of the run.
        split: one of `SPLITS`.
        run: the run's folder; what is drawn from another training set than its own is refused.
    """
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    if split == "test":
        test = _open(settings).test
        if test is None:
            raise ArrnError(
                f"the data set {settings.dataset!r} has no test split; train with --holdout N and evaluate with "
                "--split validation"
            )
        return examine(test, settings.skip_bad, decode=settings.skip_bad)
    data = open_run_data(settings)
    if run is not None and (split == "train" or settings.holdout):
        check_trained_on(run, describe_samples(data.whole))
    if split == "train":
        return data.train
    if data.validation is None:
        raise ArrnError("nothing was held out in this run, so it has no validation split: train with --holdout N")
    return data.validation


def _open(settings: RunSettings) -> Dataset:
    return open_dataset(settings.dataset, settings.data, Window(settings.window, settings.sample_rate))


def _examined(part: Source, whole: Examined) -> Examined:
    assert isinstance(part, Selection)
    return Examined(part, tuple(whole.sizes[index] for index in part.indices.tolist()), ())
