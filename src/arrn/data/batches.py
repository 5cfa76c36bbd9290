"""Batches for training and evaluation: from memory, from disk, or from a store; the order is the same for all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Literal, Self, TypeAlias

import torch

from arrn.data.epochs import PlannedBatch, plan_epoch, plan_in_order, steps_per_epoch
from arrn.data.examining import Examined
from arrn.data.placement import Bucket, Placement, fits_in_memory, load_buckets
from arrn.data.read_ahead import read_ahead
from arrn.data.windows import WINDOW_BYTES, ChunkedOrder, Windows
from arrn.data.workers import Wanted, Workers
from arrn.errors import ArrnError
from arrn.signal.grid import Grid
from arrn.signal.scaling import full_scale
from arrn.teamwork import Team

Order: TypeAlias = Windows | Literal["whole"]
"""How epochs are shuffled: within windows, or as a whole."""

_ENOUGH = 20_000  # samples; more change the third digit at most


@dataclass(frozen=True)
class Batch:
    """The samples of one step of training or evaluation.

    Attributes:
        images: the samples in their stored dtype, of shape (batch, channels, *grid).
        labels: int64 of shape (batch,).
        whole: the size of the batch over all processes of a team; 0 where it is the size of `images`.
    """

    images: torch.Tensor
    labels: torch.Tensor
    whole: int = 0

    @property
    def total(self) -> int:
        """The number of samples of the step, over all processes."""
        return self.whole or len(self.labels)


def open_batches(
    examined: Examined,
    placement: Placement,
    *,
    batch_size: int,
    device: torch.device,
    seed: int = 0,
    stream: bool | None = None,
    workers: int = 2,
    progress: Callable[[int], None] | None = None,
    team: Team | None = None,
    memory: int = WINDOW_BYTES,
    order: Order | None = None,
) -> Batches:
    """Batches of samples, each sample on the grid that `placement` gives for its size.

    Args:
        examined: the samples and their sizes.
        placement: the grid of each size.
        batch_size: the most samples of a batch.
        device: the device of the batches.
        seed: the seed of the order of epochs.
        stream: True reads samples when they are needed, False keeps all in memory, None streams only if the free memory
            is too small.
        workers: the number of processes that read and decode.
        progress: called with the number of samples read into memory so far.
        team: the processes that share the batches.
        memory: for a streamed set in chunks, the size of the shuffle window: bytes of encoded samples over all
            processes.
        order: how epochs are shuffled. By default a streamed set in chunks is shuffled within windows, and every other
            set as a whole. A resumed run passes the order that it began with.
    """
    team = team or Team()
    if stream is None:
        stream = not fits_in_memory(examined, placement, device)
    origin = examined.source.origin()
    windows = None if isinstance(order, str) else order
    if order is None and stream and origin is not None:
        windows = Windows.within(origin[0].lengths, origin[0].weights, memory, team.size)
    batches: Batches
    if stream:
        batches = StreamedBatches(examined, placement, batch_size, seed, device, workers, memory)
    else:
        batches = MemoryBatches(load_buckets(examined, placement, device, progress), batch_size, seed)
    batches.team = team
    if origin is not None and (windows is not None or stream):
        chunk_of = origin[0].chunk_of[origin[1]]
        batches.chunked = ChunkedOrder.of(windows, chunk_of, members_of(examined, placement))
    return batches


def members_of(examined: Examined, placement: Placement) -> list[torch.Tensor]:
    """The samples of each grid, in order; the largest grid first."""
    grids = {grid: number for number, grid in enumerate(grids_of(examined, placement))}
    numbers = torch.tensor([grids[placement.targets[size]] for size in examined.sizes])
    return [torch.nonzero(numbers == number)[:, 0] for number in range(len(grids))]


def grids_of(examined: Examined, placement: Placement) -> list[Grid]:
    """The grids that samples are brought to, the largest first."""
    return sorted({placement.targets[size] for size in set(examined.sizes)}, reverse=True)


class Batches(ABC):
    """Epochs of batches, each of one grid; the order depends on the seed and the epoch alone.

    Attributes:
        grids: the grid of each bucket.
        counts: the number of samples of each bucket.
        batch_size: the most samples of a batch.
        seed: the seed of the run.
        team: the processes that share the batches. In `epoch` each process takes a part of every batch; in `in_order`
            each process takes some of the batches.
        chunked: the order of samples that lie in chunks; None shuffles the set as a whole.
    """

    team = Team()
    chunked: ChunkedOrder | None = None

    def __init__(self, grids: Sequence[Grid], counts: Sequence[int], batch_size: int, seed: int) -> None:
        self.grids = tuple(grids)
        self.counts = tuple(counts)
        self.batch_size = batch_size
        self.seed = seed

    def __len__(self) -> int:
        """The number of batches of an epoch."""
        if self.windows is not None:
            assert self.chunked is not None
            return self.chunked.steps(self.batch_size)
        return steps_per_epoch(self.counts, self.batch_size)

    @property
    def windows(self) -> Windows | None:
        """The windows that epochs are shuffled within; None where epochs are shuffled as a whole."""
        return None if self.chunked is None else self.chunked.windows

    @property
    def order(self) -> Order:
        """How epochs are shuffled."""
        return self.windows or "whole"

    def plan(self, epoch: int) -> list[PlannedBatch]:
        """The batches of all processes in an epoch. Epochs are counted from 0."""
        if self.windows is not None:
            assert self.chunked is not None
            return self.chunked.epoch(self.batch_size, self.seed, epoch)
        return plan_epoch(self.counts, self.batch_size, self.seed, epoch)

    def plan_in_order(self, rank: int) -> list[PlannedBatch]:
        """The batches of one process of the team, unshuffled."""
        if self.chunked is None:
            return plan_in_order(self.counts, self.batch_size)[rank :: self.team.size]
        plan = self.chunked.in_order(self.batch_size)  # chunks are not shared, so each process has a stretch
        return plan[len(plan) * rank // self.team.size : len(plan) * (rank + 1) // self.team.size]

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from number `start` on. Epochs and batches are counted from 0."""
        return self._take([replace(batch, places=self.team.share(batch.places)) for batch in self.plan(epoch)[start:]])

    def in_order(self) -> Iterator[Batch]:
        """Batches that hold every sample once, unshuffled. In a team each sample comes in one process only."""
        return self._take(self.plan_in_order(self.team.rank))

    def close(self) -> None:  # noqa: B027  # in memory there is nothing to end
        """Ends the processes that read, if there are any. No batches can be read afterwards."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def _take(self, plan: Sequence[PlannedBatch]) -> Iterator[Batch]: ...


class MemoryBatches(Batches):
    """Batches of samples that stay on the device. Only the order of an epoch is copied to the device."""

    def __init__(self, buckets: Sequence[Bucket], batch_size: int, seed: int) -> None:
        super().__init__([b.grid for b in buckets], [len(b) for b in buckets], batch_size, seed)
        self.buckets = list(buckets)

    def _take(self, plan: Sequence[PlannedBatch]) -> Iterator[Batch]:
        if not plan:
            return
        lengths = [len(batch.places) for batch in plan]
        order = torch.cat([batch.places for batch in plan]).to(self.buckets[0].labels.device)
        for planned, places in zip(plan, torch.split(order, lengths), strict=True):
            bucket = self.buckets[planned.bucket]
            yield Batch(bucket.images[places], bucket.labels[places], planned.whole)


class StreamedBatches(Batches):
    """Batches of samples that are read when they are needed, for sets that do not fit in memory.

    This process reads samples that lie in chunks, and worker processes decode them. Workers both read and decode all
    other samples.

    Args:
        examined: the samples and their sizes.
        placement: the grid of each size.
        batch_size: the most samples of a batch.
        seed: the seed of the run.
        device: the device of the batches.
        workers: the number of processes that read and decode; with 0, this process does both.
        memory: for samples in chunks, the most bytes of encoded samples that are kept.
    """

    def __init__(
        self,
        examined: Examined,
        placement: Placement,
        batch_size: int,
        seed: int,
        device: torch.device,
        workers: int = 2,
        memory: int = WINDOW_BYTES,
    ) -> None:
        self._members = members_of(examined, placement)
        super().__init__(grids_of(examined, placement), [len(members) for members in self._members], batch_size, seed)
        self._device = device
        self._labels = examined.source.labels
        self._origin = examined.source.origin()
        self._memory = memory
        self._ahead: Generator[list[bytes | None]] | None = None
        if self._origin is not None:
            self._origin[0].forget()
        self._workers = Workers(examined.source, placement, workers)

    def close(self) -> None:
        self._stop_reading()
        self._workers.close()

    def _stop_reading(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def _take(self, plan: Sequence[PlannedBatch]) -> Iterator[Batch]:
        chosen = [self._members[batch.bucket][batch.places] for batch in plan]
        for planned, indices, images in zip(plan, chosen, self._workers.read(self._wanted(plan, chosen)), strict=True):
            # A copy, since the workers will write there again; from pinned memory it goes to a GPU meanwhile.
            images = images.pin_memory() if self._device.type == "cuda" else images.clone()
            images, labels = (tensor.to(self._device, non_blocking=True) for tensor in (images, self._labels[indices]))
            yield Batch(images, labels, planned.whole)

    def _wanted(self, plan: Sequence[PlannedBatch], chosen: Sequence[torch.Tensor]) -> Iterator[Wanted]:
        """What workers are to read for each batch."""
        encoded: Iterable[list[bytes | None] | None] = repeat(None, len(plan))
        self._stop_reading()  # of an epoch that was not read to its end
        if self._origin is not None:
            source, places = self._origin
            self._ahead = read_ahead(source, [places[indices] for indices in chosen], self._memory * 5 // 4)
            encoded = self._ahead
        for planned, indices, contents in zip(plan, chosen, encoded, strict=True):
            yield Wanted(indices.tolist(), self.grids[planned.bucket], contents)


def measure_statistics(batches: Batches) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The mean and the standard deviation of each channel, over the first 20,000 samples of an epoch.

    Samples are divided by their `full_scale` first.
    """
    total = square = torch.zeros((), dtype=torch.float64)
    samples = images = 0
    for batch in batches.epoch(0):
        pixels = batch.images.movedim(1, 0).flatten(1).float() / full_scale(batch.images.dtype)
        total = total + pixels.sum(dim=1).cpu().double()
        square = square + pixels.square().sum(dim=1).cpu().double()
        samples += pixels.shape[1]
        images += batch.total
        if images >= _ENOUGH:
            break
    sums = batches.team.add_up([*total.tolist(), *square.tolist(), float(samples)])
    total, square = torch.tensor(sums[:-1], dtype=torch.float64).chunk(2)
    mean = total / sums[-1]
    std = (square / sums[-1] - mean.square()).clamp_min(0).sqrt()
    if not bool((std > 0).all()):
        raise ArrnError(
            f"the training samples are constant, so they cannot be normalised: standard deviations {std.tolist()}"
        )
    return tuple(mean.tolist()), tuple(std.tolist())
