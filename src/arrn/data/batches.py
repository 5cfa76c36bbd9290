"""Batches for training and evaluation, from memory or from disk: the same batches in the same order."""

from __future__ import annotations

import atexit
import os
import signal
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.util import Finalize
from typing import Any, Self

import torch
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from arrn.data.epochs import PlannedBatch, plan_epoch, plan_in_order, steps_per_epoch
from arrn.data.examining import Examined
from arrn.data.placement import Bucket, Placement, fits_in_memory, load_buckets
from arrn.data.source import BadSample, Source
from arrn.errors import ArrnError
from arrn.signal.grid import Grid
from arrn.signal.scaling import full_scale
from arrn.teamwork import Team

_ENOUGH = 20_000  # samples; more change the third digit at most


@dataclass(frozen=True)
class Batch:
    """Samples of one grid, as they are stored, of shape (batch, channels, *grid); int64 labels of shape (batch,).

    `whole` is how many samples the batch has in all processes of a team, where that is more.
    """

    images: torch.Tensor
    labels: torch.Tensor
    whole: int = 0

    @property
    def total(self) -> int:
        """How many samples share the step."""
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
) -> Batches:
    """Batches of the samples on the grids that `placement` gives them.

    Args:
        examined: the samples and their sizes.
        placement: the grid of each size.
        batch_size: samples per batch, at most.
        device: where batches are made.
        seed: of the order of epochs.
        stream: read from disk (True), keep in memory (False), or whichever the free memory allows (None).
        workers: processes that read from disk.
        progress: told the number of samples read into memory so far.
        team: the processes that share the batches.
    """
    if stream is None:
        stream = not fits_in_memory(examined, placement, device)
    batches: Batches
    if stream:
        batches = StreamedBatches(examined, placement, batch_size, seed, device, workers)
    else:
        batches = MemoryBatches(load_buckets(examined, placement, device, progress), batch_size, seed)
    if team is not None:
        batches.team = team
    return batches


class Batches(ABC):
    """Epochs of batches, each of one grid; the order depends on the seed and the epoch alone.

    Attributes:
        grids: the grid of each bucket.
        counts: the samples of each bucket.
        batch_size: samples per batch, at most.
        seed: of the run.
        team: the processes that share them: each takes its part of every batch of an epoch, and every so many-th
            batch of those in order.
    """

    team = Team()

    def __init__(self, grids: Sequence[Grid], counts: Sequence[int], batch_size: int, seed: int) -> None:
        self.grids = tuple(grids)
        self.counts = tuple(counts)
        self.batch_size = batch_size
        self.seed = seed

    def __len__(self) -> int:
        """Batches per epoch."""
        return steps_per_epoch(self.counts, self.batch_size)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, counted from 0, from the one numbered `start` on."""
        plan = plan_epoch(self.counts, self.batch_size, self.seed, epoch)[start:]
        return self._take([replace(batch, places=self.team.share(batch.places)) for batch in plan])

    def in_order(self) -> Iterator[Batch]:
        """Every sample once, bucket by bucket, unshuffled; in a team, once among all."""
        return self._take(plan_in_order(self.counts, self.batch_size)[self.team.rank :: self.team.size])

    def close(self) -> None:  # noqa: B027  # in memory there is nothing to end
        """Ends the processes that read, if there are any; no batches come after it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def _take(self, plan: Sequence[PlannedBatch]) -> Iterator[Batch]: ...


class MemoryBatches(Batches):
    """Batches of samples that stay on the device; only the order travels there, once an epoch."""

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
    """Batches read from disk by worker processes, for sets that do not fit in memory.

    Args:
        examined: the samples and their sizes.
        placement: the grid of each size.
        batch_size: samples per batch, at most.
        seed: of the run.
        device: where batches go.
        workers: processes that read and decode; 0 reads in this one.
    """

    def __init__(
        self,
        examined: Examined,
        placement: Placement,
        batch_size: int,
        seed: int,
        device: torch.device,
        workers: int = 2,
    ) -> None:
        targets = [placement.targets[size] for size in examined.sizes]
        grids = sorted(set(targets), reverse=True)
        self._members = [torch.tensor([n for n, t in enumerate(targets) if t == grid]) for grid in grids]
        super().__init__(grids, [len(members) for members in self._members], batch_size, seed)
        self._device = device
        self._labels = examined.source.labels
        self._order = _Order()
        # Spawned, not forked: this process has threads, and perhaps a GPU, which a fork does not survive.
        self._loader = DataLoader(
            _Reader(examined.source, placement),
            batch_sampler=self._order,
            collate_fn=_as_read,
            num_workers=workers,
            persistent_workers=workers > 0,
            multiprocessing_context="spawn" if workers else None,
            pin_memory=device.type == "cuda",
            worker_init_fn=_prepare_worker,
        )
        self._end = weakref.finalize(self, _end_workers, self._loader)
        # When the interpreter exits, before torch has its turn: it would wait for workers that outlive its signals.
        self._end.atexit = False
        atexit.register(self._end)

    def close(self) -> None:
        self._end()
        atexit.unregister(self._end)

    def _take(self, plan: Sequence[PlannedBatch]) -> Iterator[Batch]:
        assert self._end.alive, "these batches are closed"
        chosen = [self._members[batch.bucket][batch.places] for batch in plan]
        self._order.batches = [indices.tolist() for indices in chosen]
        for planned, indices, images in zip(plan, chosen, self._loader, strict=True):
            if isinstance(images, BadSample):
                raise images
            labels = self._labels[indices]
            images, labels = (tensor.to(self._device, non_blocking=True) for tensor in (images, labels))
            yield Batch(images, labels, planned.whole)


class _Order(Sampler[list[int]]):
    """The batches of the epoch at hand; changed between epochs, so that workers live on."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class _Reader(Dataset[torch.Tensor]):
    """What a worker does: reads samples, brings them to their grid, stacks them."""

    def __init__(self, source: Source, placement: Placement) -> None:
        self.source = source
        self.placement = placement

    def __getitems__(self, indices: list[int]) -> torch.Tensor | BadSample:
        try:
            first = self.placement.read(self.source, indices[0])
            grid = tuple(first.shape[1:])
            return torch.stack([first, *(self.placement.read(self.source, index, grid) for index in indices[1:])])
        except BadSample as error:
            return error  # raised in the main process: the loader would wrap it in a page of traceback


def _as_read(stacked: Any) -> Any:
    return stacked


def _prepare_worker(worker: int) -> None:
    # A signal to the whole group stops the run when its step is done, and that step may need this worker.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # A worker that is ended while its sender thread is inside torch is aborted by the interpreter's own exit (the
    # thread is unwound through C++ that allows no unwinding), so it leaves without one, after all other finalizers.
    Finalize(None, os._exit, args=(0,), exitpriority=-100)


def _end_workers(loader: DataLoader[torch.Tensor]) -> None:
    iterator = loader._iterator
    if isinstance(iterator, _MultiProcessingDataLoaderIter):
        iterator._shutdown_workers()
    loader._iterator = None


def measure_statistics(batches: Batches) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of the samples divided by their `full_scale`, over an epoch's first ones."""
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
        raise ArrnError(f"the training samples are constant: standard deviations {std.tolist()} cannot normalise them")
    return tuple(mean.tolist()), tuple(std.tolist())
