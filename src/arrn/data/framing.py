"""Samples in the proportions of a network's grids, as `arrn.runtime.aspect` gives them, before all else is done."""

from __future__ import annotations

import torch

from arrn.data.chunks import ChunkedSource
from arrn.data.examining import Examined
from arrn.data.source import BadSample, Selection, Source
from arrn.errors import ArrnError
from arrn.runtime.aspect import Aspect
from arrn.signal.grid import Grid, format_grid

_NOTICED = 1.1  # times; less than this nobody sees
_MANY = 0.05  # of the samples


class Framed(Source):
    """The samples of a source, each padded or cropped to the proportions of a grid."""

    def __init__(self, source: Source, aspect: Aspect) -> None:
        super().__init__(source.name, source.split, source.class_names, source.labels, source.form, source.max_pixels)
        self.source, self.aspect = source, aspect

    def where(self, index: int) -> str:
        return self.source.where(index)

    def size(self, index: int) -> Grid:
        return self.aspect.frame(self.source.size(index))

    def read(self, index: int) -> torch.Tensor:
        return self._framed(self.source.read(index), index)

    def origin(self) -> tuple[ChunkedSource, torch.Tensor] | None:
        return self.source.origin()

    def decode(self, index: int, encoded: bytes | None, out: torch.Tensor | None = None) -> torch.Tensor:
        return self._framed(self.source.decode(index, encoded), index)

    def _framed(self, sample: torch.Tensor, index: int) -> torch.Tensor:
        # A file may have grown since it was examined.
        wrong = self.aspect.refusal(tuple(sample.shape[1:]), self.max_pixels)
        if wrong is not None:
            raise BadSample(self.where(index), wrong)
        return torch.from_numpy(self.aspect(sample.numpy()))

    def changes(self, index: int) -> tuple[str, ...]:
        return self.source.changes(index)


def frame(examined: Examined, aspect: Aspect, skip_bad: bool = False) -> Examined:
    """The samples, padded or cropped as `aspect` says, with their new sizes; `examined` itself if nothing changes.

    Args:
        examined: the samples and their own sizes.
        aspect: of the network.
        skip_bad: leave out samples that would be too large after padding.

    Raises:
        BadSample: for the first sample that would be too large after padding, unless `skip_bad`.

    >>> from arrn.data import examine, open_dataset
    >>> found = examine(open_dataset("sample").test)
    >>> frame(found, Aspect("crop", (32, 16))).sizes[0], frame(found, Aspect("crop", (32, 32))) is found
    ((32, 16), True)
    """
    sizes = {size: aspect.frame(size) for size in set(examined.sizes)}
    if all(size == framed for size, framed in sizes.items()):
        return examined
    refused = {size: wrong for size in sizes if (wrong := aspect.refusal(size, examined.source.max_pixels)) is not None}
    source, bad = examined.source, list(examined.bad)
    if refused:
        bad += [BadSample(source.where(n), refused[s]) for n, s in enumerate(examined.sizes) if s in refused]
        if not skip_bad:
            raise bad[len(examined.bad)]
        good = [n for n, size in enumerate(examined.sizes) if size not in refused]
        if not good:
            raise ArrnError(f"no sample of {source.name} can be padded; the first: {bad[len(examined.bad)]}")
        source = Selection(source, good)
    left = tuple(sizes[size] for size in examined.sizes if size not in refused)
    return Examined(Framed(source, aspect), left, tuple(bad), examined.changes)


def aspect_in_words(examined: Examined, aspect: Aspect) -> str | None:
    """One line on how samples with other proportions are fitted; None where nobody would see the difference.

    Args:
        examined: the samples, with their own sizes.
        aspect: of the network.
    """
    word, total = examined.source.form.words, len(examined.sizes)
    others = [size for size in examined.sizes if aspect.distortion(size) >= _NOTICED]
    if not others or (aspect.mode == "stretch" and len(others) < _MANY * total):
        return None
    shape = ":".join(map(str, aspect.grid)) if len(set(aspect.grid)) > 1 else ":".join("1" * len(aspect.grid))
    worst = max(others, key=aspect.distortion)
    start = f"{len(others):,} of {total:,} {word} have other proportions than the network's grids, {shape} (one is "
    start += f"{format_grid(worst)})"
    mean = sum(map(aspect.kept, others)) / len(others)
    if aspect.mode == "stretch":
        return (
            f"{start}: they are stretched by up to {aspect.distortion(worst):.3g} times; --aspect pad or --aspect crop "
            "keeps their proportions"
        )
    if aspect.mode == "pad":
        return f"{start}: they are padded with mirrored edges; on average {mean:.0%} of the result is original"
    return f"{start}: they are cropped to their middle; on average this keeps {mean:.0%} of the original"
