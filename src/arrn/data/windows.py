"""The order of samples that lie in chunks: shuffled, though each chunk is read about once; from a seed alone.

An epoch permutes the chunks, and the samples within each. The row of samples that this gives is cut into lanes of equal
length, and each sample moves ahead by a random distance within a window of its lane. Batches take their samples from
the lanes in turn. So a batch holds samples from distant parts of the set, only a few chunks of each lane are needed at
a time, and a process that shares batches with others needs the chunks of its own lanes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from arrn.data.epochs import PlannedBatch, derive_seed

WINDOW_BYTES = 2**27
"""The encoded samples that a set is shuffled within by default, all lanes together: 128 MiB."""

_LANES = 8
_SAMPLES_IN_ORDER = 4096  # among which those of one grid share batches when a set is read in order


@dataclass(frozen=True)
class Windows:
    """How far shuffling moves samples.

    Attributes:
        lanes: the number of lanes that a set is cut into.
        window: the most places by which a sample moves within its lane; 0 shuffles the set as a whole.
    """

    lanes: int
    window: int

    @classmethod
    def within(cls, lengths: Sequence[int], weights: Sequence[int], memory: int, processes: int = 1) -> Windows:
        """The windows with which the encoded samples that wait for their turn take about `memory` bytes.

        There are 8 lanes, so the order is the same over 1, 2, 4 and 8 processes. With more processes there are at least
        as many lanes as processes, and each lane still has an eighth of `memory`. There are fewer lanes where chunks
        are too large for 8.

        Args:
            lengths: the number of samples of each chunk.
            weights: the number of bytes of each chunk.
            memory: the bytes for all lanes together.
            processes: the number of processes that share the batches.

        >>> Windows.within([100] * 1000, [10**7] * 1000, memory=2**28)
        Windows(lanes=8, window=471)
        >>> Windows.within([100] * 10, [10**7] * 10, memory=2**28)
        Windows(lanes=1, window=0)
        """
        samples, total = sum(lengths), sum(weights)
        if total <= memory:
            return cls(1, 0)
        lanes = _LANES * -(-processes // _LANES)
        memory = memory * lanes // _LANES
        each = total / samples
        # The chunk that a sample lies in, on average over samples: half of it waits while the window moves through.
        chunk = sum(length**2 for length in lengths) / samples
        while lanes > 1 and 2 * memory / (lanes * each) < 3 * chunk:
            lanes //= 2
        # Of the samples that a window spans half are still to come, and of the chunk at its end almost all.
        room = 2 * memory / (lanes * each)
        return cls(lanes, max(1, int(max(room - 2 * chunk, room / 4))))

    def order(self, chunk_of: torch.Tensor, seed: int, epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """All samples in the order of an epoch, and the lane of each.

        Args:
            chunk_of: the chunk of each sample, int64 of shape (samples,).
            seed: the seed of the run.
            epoch: the number of the epoch, counted from 0.

        >>> places, lanes = Windows(2, 4).order(torch.arange(6) // 2, seed=0, epoch=0)
        >>> sorted(places.tolist()), lanes.tolist()
        ([0, 1, 2, 3, 4, 5], [0, 1, 0, 1, 0, 1])
        """
        generator = torch.Generator().manual_seed(derive_seed(seed, "windows", epoch))
        count = len(chunk_of)
        if not self.window:
            return torch.randperm(count, generator=generator), torch.zeros(count, dtype=torch.int64)
        chunks = int(chunk_of.max()) + 1 if count else 0
        places = torch.randperm(count, generator=generator)
        turns = torch.randperm(chunks, generator=generator)
        places = places[turns[chunk_of[places]].argsort(stable=True)]
        length = count // self.lanes
        rows = places[: length * self.lanes].view(self.lanes, length)
        ahead = torch.rand(rows.shape, generator=generator, dtype=torch.float64) * self.window
        rows = rows.gather(1, (torch.arange(length) + ahead).argsort(dim=1, stable=True))
        # What is left after the lanes, fewer samples than there are lanes, comes last.
        lanes = torch.arange(self.lanes).repeat(length + 1)[:count]
        return torch.cat([rows.T.flatten(), places[length * self.lanes :]]), lanes


@dataclass(frozen=True)
class ChunkedOrder:
    """The batches of a set that lies in chunks: every sample exactly once an epoch.

    Attributes:
        windows: how it is shuffled; None for one that is only read in order.
        chunk_of: the chunk of each sample.
        bucket_of: the bucket of each sample, those of one grid.
        place_of: its place in the bucket.
        counts: the samples of each bucket.
    """

    windows: Windows | None
    chunk_of: torch.Tensor
    bucket_of: torch.Tensor
    place_of: torch.Tensor
    counts: tuple[int, ...]

    @classmethod
    def of(cls, windows: Windows | None, chunk_of: torch.Tensor, members: Sequence[torch.Tensor]) -> ChunkedOrder:
        """The order of samples whose buckets have these members."""
        bucket_of, place_of = torch.empty_like(chunk_of), torch.empty_like(chunk_of)
        for bucket, samples in enumerate(members):
            bucket_of[samples], place_of[samples] = bucket, torch.arange(len(samples))
        return cls(windows, chunk_of, bucket_of, place_of, tuple(map(len, members)))

    def steps(self, batch_size: int) -> int:
        """The number of batches of an epoch."""
        return sum(len(_lengths(count, batch_size)) for count in self.counts)

    def epoch(self, batch_size: int, seed: int, epoch: int) -> list[PlannedBatch]:
        """The batches of an epoch; those of the last samples of a bucket are smaller.

        A batch comes when the last of its samples has its turn. Its samples are in the order of turns over lanes, so
        that every so many-th of them, which is what a process gets, are of few lanes.
        """
        assert self.windows is not None
        order, lanes = self.windows.order(self.chunk_of, seed, epoch)
        batches: list[tuple[int, PlannedBatch]] = []
        buckets = self.bucket_of[order]
        for bucket, count in enumerate(self.counts):
            turns = torch.nonzero(buckets == bucket)[:, 0]
            lengths = torch.tensor(_lengths(count, batch_size), dtype=torch.int64)
            number = torch.arange(len(lengths)).repeat_interleave(lengths)
            ends = turns[lengths.cumsum(0) - 1].tolist()
            turns = turns[_in_turns(number, lanes[turns], self.windows.lanes)]
            parts = torch.split(self.place_of[order[turns]], lengths.tolist())
            batches += [(end, PlannedBatch(bucket, part, len(part))) for end, part in zip(ends, parts, strict=True)]
        batches.sort(key=lambda batch: batch[0])
        return [batch for _, batch in batches]

    def in_order(self, batch_size: int) -> list[PlannedBatch]:
        """Every sample once, stretch by stretch of the set, and bucket by bucket within a stretch."""
        batches = []
        for stretch in torch.split(torch.arange(len(self.bucket_of)), _SAMPLES_IN_ORDER):
            buckets, places = self.bucket_of[stretch], self.place_of[stretch]
            for bucket in sorted(set(buckets.tolist())):
                parts = torch.split(places[buckets == bucket], batch_size)
                batches += [PlannedBatch(bucket, part, len(part)) for part in parts]
        return batches


def _lengths(count: int, batch_size: int) -> list[int]:
    """Full batches, but for the last two, which share what is left."""
    full, rest = divmod(count, batch_size)
    if not rest:
        return [batch_size] * full
    if not full:
        return [rest]
    left = batch_size + rest
    return [batch_size] * (full - 1) + [left - left // 2, left // 2]


def _in_turns(number: torch.Tensor, lanes: torch.Tensor, count: int) -> torch.Tensor:
    """The order in which the samples of each batch come from one lane after the other, as long as these last.

    Args:
        number: of the batch of each sample, ascending.
        lanes: the lane of each sample.
        count: of lanes.
    """
    group = number * count + lanes
    by_lane = group.argsort(stable=True)
    sizes = torch.bincount(group[by_lane])
    first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    turn = torch.empty_like(group)
    turn[by_lane] = torch.arange(len(group)) - first
    most = int(turn.max()) + 1 if len(turn) else 1
    return ((number * most + turn) * count + lanes).argsort()
