"""Before training: every sample looked over, and a validation split held out."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import torch

from arrn.data.chunks import ChunkedSource
from arrn.data.looking import Seen, look_at_chunks
from arrn.data.source import BadSample, Selection, Source
from arrn.data.storage import AT_ONCE, is_remote
from arrn.errors import ArrnError
from arrn.signal.grid import Grid

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
Look: TypeAlias = tuple[Grid, tuple[str, ...]]
"""What there is to see of a good sample: its grid, and what reading it changes."""

_CHUNK = 64
_NAMED = 3  # bad samples that a line names

# Seconds a sample. Threads gain on slow disks and large images; on small ones they lose half to Python's lock.
_THREADS_PAY_FROM = 1e-3


@dataclass(frozen=True)
class Examined:
    """The samples of a source that can be read, their sizes, and the bad samples.

    Attributes:
        source: the good samples.
        sizes: the size of each good sample, (height, width) for images.
        bad: the bad samples, in order.
        changes: each change that reading makes, such as "mixed down from 2 channels to one", and in how many samples.
    """

    source: Source
    sizes: tuple[Grid, ...]
    bad: tuple[BadSample, ...]
    changes: Mapping[str, int] = field(default_factory=dict)

    @property
    def remarks(self) -> list[str]:
        """Notes on the samples for the user, a line each."""
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
        skip_bad: leave out samples that cannot be read, and samples whose label is not the number of a class.
        decode: read whole samples. This is slower, and also finds samples that are cut short or damaged inside.
        progress: called now and then, in this thread, with the number of samples read so far.

    Raises:
        BadSample: for the first bad sample, unless `skip_bad`.
        ArrnError: for a class of the training split without a good sample.

    >>> from arrn.data import open_dataset
    >>> found = examine(open_dataset("sample").test)
    >>> set(found.sizes), len(found.bad)
    ({(32, 32)}, 0)
    """
    known: dict[Grid, Grid] = {}  # one object for all samples of a size
    sizes: list[Grid] = []
    bad: list[BadSample] = []
    places: list[int] = []  # of the bad ones
    changes: Counter[str] = Counter()
    seen = 0
    for answers in _look_at_all(source, decode):
        for answer in answers:
            if isinstance(answer, BadSample):
                if not skip_bad:
                    raise answer
                bad.append(answer)
                places.append(seen)
            else:
                sizes.append(known.setdefault(answer[0], answer[0]))
                changes.update(answer[1])
            seen += 1
        if progress is not None:
            progress(seen)
    good = torch.ones(len(source), dtype=torch.bool)
    good[places] = False
    kept = Selection(source, torch.nonzero(good)[:, 0]) if bad else source
    _check_classes(source, kept, bad)
    return Examined(kept, tuple(sizes), tuple(bad), dict(changes))


def skipped_in_words(bad: Sequence[BadSample | str], listed_in: str | None = None) -> str:
    """One line on the skipped samples: their number, the names of the first ones, and the file that lists all.

    >>> skipped_in_words(["a.png: it is empty"])
    'skipped 1 bad sample: a.png: it is empty'
    """
    first, rest = [str(error) for error in bad[:_NAMED]], len(bad) - _NAMED
    more = f"; and {rest} more" if rest > 0 else ""
    place = f"; all are in {listed_in}" if rest > 0 and listed_in else ""
    return f"skipped {len(bad):,} bad sample{'s' * (len(bad) != 1)}: {'; '.join(first)}{more}{place}"


@contextmanager
def suggesting_skip_bad(option: str, given: bool) -> Iterator[None]:
    """Inside this context, the error of a bad sample also names the option that skips bad samples, if it is not given.

    >>> with suggesting_skip_bad("--skip-bad", False):
    ...     raise BadSample("cat.png", "it is empty")
    Traceback (most recent call last):
        ...
    arrn.runtime.files.BadSample: cat.png: it is empty; --skip-bad leaves out samples that cannot be read
    """
    try:
        yield
    except BadSample as error:
        if given:
            raise
        raise BadSample(error.where, f"{error.reason}; {option} leaves out samples that cannot be read") from None


def _look_at_all(source: Source, decode: bool) -> Iterator[list[Look | BadSample]]:
    """A look or an error for each sample, in order, a chunk at a time."""
    if isinstance(source, ChunkedSource):
        return _with_labels(source, look_at_chunks(source, decode, _each_chunk(source)))

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


def _each_chunk(source: ChunkedSource) -> Callable[[Callable[[int], _Result], Sequence[int]], Iterator[_Result]]:
    """Does some work for each chunk of a source, as `in_chunks` does."""
    samples = max(1, len(source) // max(1, len(source.lengths)))
    threads = AT_ONCE if is_remote(source.files[0].address) else None
    return lambda work, chunks: _each(work, chunks, samples, threads)


def _with_labels(source: Source, seen: Iterator[list[Seen]]) -> Iterator[list[Look | BadSample]]:
    index = 0
    wrong = (source.labels < 0) | (source.labels >= len(source.class_names))
    for part in seen:
        answers: list[Look | BadSample] = []
        for what, unlabelled in zip(part, wrong[index : index + len(part)].tolist(), strict=True):
            if unlabelled:
                try:
                    source.check_label(index)
                except BadSample as error:
                    answers.append(error)
            else:
                answers.append(BadSample(source.where(index), what) if isinstance(what, str) else what)
            index += 1
        yield answers


def in_chunks(work: Callable[[range], _Result], count: int) -> Iterator[_Result]:
    """``work`` on each chunk of ``range(count)``, in order; closing the iterator drops what is still to do.

    The first two chunks are done here; how long the second takes tells whether the others are worth threads (the
    first one also loads decoders and opens files).

    >>> list(in_chunks(len, 150))
    [64, 64, 22]
    """
    return _each(work, [range(start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK)], _CHUNK)


def _each(
    work: Callable[[_Item], _Result], chunks: Sequence[_Item], samples: int, threads: int | None = None
) -> Iterator[_Result]:
    """``work`` on each of the chunks, of so many samples each, as `in_chunks` says; by so many threads, where given."""
    yield from map(work, chunks[:1])
    begin = time.perf_counter()
    timed = [work(chunk) for chunk in chunks[1:2]]
    taken = time.perf_counter() - begin
    yield from timed
    if taken < _THREADS_PAY_FROM * samples:
        yield from map(work, chunks[2:])
        return
    pool = ThreadPoolExecutor(max_workers=threads or min(8, os.cpu_count() or 1))
    try:
        yield from pool.map(work, chunks[2:])
    finally:
        pool.shutdown(cancel_futures=True)


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
                f"no sample of class {class_name!r} of {source.name} can be used: {had} are bad; the first: {first}"
            )
        if source.split == "train":
            raise ArrnError(f"class {class_name!r} of {source.name} has no samples in the training split")


def hold_out(source: Source, count: int, seed: int) -> tuple[Source, Source]:
    """Splits a source into two: the samples to train on, and `count` samples that are held out.

    Each class gives samples in proportion to its size, to within one sample, and keeps at least one. The choice
    depends only on the labels and the seed. Both parts keep the order of the source.

    >>> from arrn.data import open_dataset
    >>> rest, held_out = hold_out(open_dataset("sample").train, 500, seed=0)
    >>> len(rest), held_out.labels.bincount().tolist()
    (4500, [50, 50, 50, 50, 50, 50, 50, 50, 50, 50])
    """
    for index in torch.nonzero((source.labels < 0) | (source.labels >= len(source.class_names)))[:1]:
        source.check_label(int(index))
    sizes = torch.bincount(source.labels, minlength=len(source.class_names))
    most = len(source) - int((sizes > 0).sum())
    if not 0 < count <= most:
        raise ArrnError(
            f"{count} samples cannot be held out of the {len(source)} samples of {source.name}: the number must be "
            f"from 1 to {most}, so that each class keeps a sample to train on"
        )
    generator = torch.Generator().manual_seed(seed)
    held_out = torch.zeros(len(source), dtype=torch.bool)
    for label, share in enumerate(_shares(sizes.tolist(), count)):
        members = torch.nonzero(source.labels == label)[:, 0]
        order = torch.randperm(len(members), generator=generator)
        held_out[members[order[:share]]] = True
    rest = Selection(source, torch.nonzero(~held_out)[:, 0])
    return rest, Selection(source, torch.nonzero(held_out)[:, 0])


def _shares(sizes: list[int], count: int) -> list[int]:
    """How many to take of each class: its part of `count`, rounded so that the sum is exact, one left at least."""
    total = sum(sizes)
    shares = [min(count * size // total, max(size - 1, 0)) for size in sizes]
    while sum(shares) < count:
        # To the class that is furthest behind its part, of those that can give one more.
        able = [label for label, size in enumerate(sizes) if shares[label] < size - 1]
        shares[max(able, key=lambda label: count * sizes[label] - shares[label] * total)] += 1
    return shares
