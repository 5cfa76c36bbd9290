"""Looking at every sample before training starts, so that a bad one is found in the first minute, not the last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from arrn.data.chunks import in_chunks
from arrn.data.source import BadSample, Selection, Source
from arrn.errors import ArrnError

__all__ = ["Examined", "examine"]


@dataclass(frozen=True)
class Examined:
    """What was found in a source.

    Attributes:
        source: the good samples.
        sizes: the (height, width) of each of those.
        bad: the others, in order.
    """

    source: Source
    sizes: tuple[tuple[int, ...], ...]
    bad: tuple[BadSample, ...]


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
        decode: read whole samples: slower, but it finds images that are cut short or damaged within.
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
    sizes: list[tuple[int, ...]] = []
    bad: list[BadSample] = []
    seen = 0
    for answers in _look_at_all(source, decode):
        for answer in answers:
            if isinstance(answer, BadSample):
                if not skip_bad:
                    raise answer
                bad.append(answer)
            else:
                good.append(seen)
                sizes.append(answer)
            seen += 1
        if progress is not None:
            progress(seen)
    kept = Selection(source, good) if bad else source
    _check_classes(source, kept, bad)
    return Examined(kept, tuple(sizes), tuple(bad))


def _look_at_all(source: Source, decode: bool) -> Iterator[list[tuple[int, ...] | BadSample]]:
    """A size or an error for each sample, in order, a chunk at a time."""

    def look(indices: range) -> list[tuple[int, ...] | BadSample]:
        answers: list[tuple[int, ...] | BadSample] = []
        for index in indices:
            try:
                source.check_label(index)
                answers.append(tuple(source.read(index).shape[1:]) if decode else source.size(index))
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
