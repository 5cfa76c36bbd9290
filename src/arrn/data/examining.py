"""Looking at every sample before training starts, so that a bad one is found in the first minute, not the last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

from arrn.data.chunks import in_chunks
from arrn.data.source import BadSample, Selection, Source
from arrn.errors import ArrnError
from arrn.signal.grid import Grid

__all__ = ["Examined", "examine"]

Look: TypeAlias = tuple[Grid, tuple[str, ...]]
"""What there is to see of a good sample: its grid, and what reading it changes."""


@dataclass(frozen=True)
class Examined:
    """What was found in a source.

    Attributes:
        source: the good samples.
        sizes: the grid of each of those, (height, width) for images.
        bad: the others, in order.
        changes: what reading changes, in words, and in how many samples.
    """

    source: Source
    sizes: tuple[Grid, ...]
    bad: tuple[BadSample, ...]
    changes: Mapping[str, int] = field(default_factory=dict)

    @property
    def remarks(self) -> list[str]:
        """What a user should know of the samples, a line each."""
        words = self.source.form.words
        return [f"{count:,} of {len(self.sizes):,} {words} are {what}" for what, count in self.changes.items()]


def examine(
    source: Source,
    skip_bad: bool = False,
    decode: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Examined:
    """Reads the header of every sample.

    Args:
        source: the samples.
        skip_bad: go on without those that cannot be read or whose label is outside the range.
        decode: read whole samples: slower, but it finds samples that are cut short or damaged within.
        progress: called now and then, in this thread, with the number of samples seen so far.

    Raises:
        BadSample: for the first bad sample, unless `skip_bad`.
        ArrnError: for a class of a training split that has no good sample.

    >>> from arrn.data import open_dataset
    >>> found = examine(open_dataset("sample").test)
    >>> set(found.sizes), len(found.bad)
    ({(32, 32)}, 0)
    """
    good: list[int] = []
    sizes: list[Grid] = []
    bad: list[BadSample] = []
    changes: Counter[str] = Counter()
    seen = 0
    for answers in _look_at_all(source, decode):
        for answer in answers:
            if isinstance(answer, BadSample):
                if not skip_bad:
                    raise answer
                bad.append(answer)
            else:
                good.append(seen)
                sizes.append(answer[0])
                changes.update(answer[1])
            seen += 1
        if progress is not None:
            progress(seen)
    kept = Selection(source, good) if bad else source
    _check_classes(source, kept, bad)
    return Examined(kept, tuple(sizes), tuple(bad), dict(changes))


def _look_at_all(source: Source, decode: bool) -> Iterator[list[Look | BadSample]]:
    """A look or an error for each sample, in order, a chunk at a time."""

    def look(indices: range) -> list[Look | BadSample]:
        answers: list[Look | BadSample] = []
        for index in indices:
            try:
                source.check_label(index)
                size = tuple(source.read(index).shape[1:]) if decode else source.size(index)
                answers.append((size, source.changes(index)))
            except BadSample as error:
                answers.append(error)
        return answers

    return in_chunks(look, len(source))


def _check_classes(source: Source, kept: Source, bad: list[BadSample]) -> None:
    """A class that nothing is left of cannot be learnt; one that a test split never had can do without."""
    counts = torch.bincount(kept.labels, minlength=len(source.class_names))
    for label, class_name in enumerate(source.class_names):
        if counts[label]:
            continue
        had = int((source.labels == label).sum())
        if had:
            places = {source.where(int(index)) for index in torch.nonzero(source.labels == label)}
            first = next(error for error in bad if error.where in places)
            raise ArrnError(
                f"class {class_name!r} of {source.name} has no good sample, {had} bad ones; the first: {first}"
            )
        if source.split == "train":
            raise ArrnError(f"class {class_name!r} of {source.name} has no samples in the training split")
