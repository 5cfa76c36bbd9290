"""Which samples make each batch of an epoch, from a seed: nothing else is remembered."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

# A bucket of at least this many full batches leaves out its remainder (other samples each epoch), so
# that every batch has one shape; smaller ones are split evenly, so that nothing much is left out.
_MANY = 8


def derive_seed(seed: int, *path: str | int) -> int:
    """A seed for the stream named by `path`, the same on every machine; 63 bits.

    Drawing each step's randomness from ``derive_seed(seed, step)`` makes a run resumable at any step
    without saving the state of a generator.

    >>> derive_seed(0, "order", 1) == derive_seed(0, "order", 1) != derive_seed(0, "order", 2)
    True
    """
    name = "/".join(map(str, (seed, *path)))
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) >> 1


@dataclass(frozen=True)
class PlannedBatch:
    """The samples of one batch, by their places in the bucket.

    Attributes:
        bucket: which.
        places: this process's samples.
        whole: how many samples the batch has in all processes.
    """

    bucket: int
    places: torch.Tensor
    whole: int


def plan_epoch(counts: Sequence[int], batch_size: int, seed: int, epoch: int) -> list[PlannedBatch]:
    """Shuffles each bucket, splits it into batches, and shuffles the batches of all buckets.

    Nothing is remembered from one epoch to the next, so a run can go on from any step of any epoch.

    Args:
        counts: the number of samples in each bucket.
        batch_size: samples per batch, at most.
        seed: of the run.
        epoch: counted from 0.

    >>> [len(batch.places) for batch in plan_epoch([10], batch_size=4, seed=0, epoch=0)]
    [4, 3, 3]
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, "order", epoch))
    batches: list[PlannedBatch] = []
    for bucket, count in enumerate(counts):
        lengths = _batch_lengths(count, batch_size)
        order = torch.randperm(count, generator=generator)[: sum(lengths)]
        batches += [PlannedBatch(bucket, places, len(places)) for places in torch.split(order, lengths)]
    return [batches[n] for n in torch.randperm(len(batches), generator=generator).tolist()]


def plan_in_order(counts: Sequence[int], batch_size: int) -> list[PlannedBatch]:
    """Every sample once, bucket by bucket, for evaluation.

    >>> [batch.places.tolist() for batch in plan_in_order([3, 1], batch_size=2)]
    [[0, 1], [2], [0]]
    """
    return [
        PlannedBatch(bucket, places, len(places))
        for bucket, count in enumerate(counts)
        if count
        for places in torch.split(torch.arange(count), batch_size)
    ]


def steps_per_epoch(counts: Sequence[int], batch_size: int) -> int:
    """How many batches `plan_epoch` makes."""
    return sum(len(_batch_lengths(count, batch_size)) for count in counts)


def _batch_lengths(count: int, batch_size: int) -> list[int]:
    full = count // batch_size
    if full >= _MANY:
        return [batch_size] * full
    number = -(-count // batch_size)
    return [count // number + (n < count % number) for n in range(number)]
