"""A validation split, taken out of the training set."""

from __future__ import annotations

import torch

from arrn.data.source import Selection, Source
from arrn.errors import ArrnError

__all__ = ["hold_out"]


def hold_out(source: Source, count: int, seed: int) -> tuple[Source, Source]:
    """Splits a source into what is left to train on and `count` samples held out, in that order.

    Each class is held out in proportion to its size, to within one sample, and keeps at least one. The choice
    depends on the labels and the seed alone; both parts keep the order of the source.

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
            f"{count} samples cannot be held out of the {len(source)} of {source.name}: it must be 1 to {most}, "
            "which leaves each class one to train on"
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
