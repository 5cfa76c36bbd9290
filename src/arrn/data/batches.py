"""Batches for training and evaluation: from memory, from disk, or from a store; the order is the same for all."""

from __future__ import annotations

import atexit
import math
import multiprocessing
import os
import signal
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any, Literal, Self, TypeAlias

import torch
from torch.utils.data import DataLoader, Dataset, Sampler, get_worker_info
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from arrn.data.epochs import PlannedBatch, plan_epoch, plan_in_order, steps_per_epoch
from arrn.data.examining import Examined
from arrn.data.placement import Bucket, Placement, fits_in_memory, load_buckets
from arrn.data.read_ahead import read_ahead
from arrn.data.source import BadSample, Source
from arrn.data.windows import WINDOW_BYTES, ChunkedOrder, Windows
from arrn.errors import ArrnError
from arrn.signal.grid import Grid
from arrn.signal.scaling import full_scale
from arrn.teamwork import Team

Order: TypeAlias = Windows | Literal["whole"]
"""How epochs are shuffled: within windows, or as a whole."""

_PREFETCHED = 2  # batches that are asked of a worker before they are needed
_ROOMS = _PREFETCHED + 1
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
        self._order = _Order()
        if self._origin is not None:
            self._origin[0].forget()
        # Spawned, not forked: this process has threads, and perhaps a GPU, which a fork does not survive.
        self._loader = DataLoader(
            _Reader(examined.source, placement),
            batch_sampler=self._order,
            collate_fn=_as_read,
            num_workers=workers,
            prefetch_factor=_PREFETCHED if workers else None,
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
        self._stop_reading()
        self._end()
        atexit.unregister(self._end)

    def _stop_reading(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def _take(self, plan: Sequence[PlannedBatch]) -> Iterator[Batch]:
        assert self._end.alive, "these batches are closed"
        chosen = [self._members[batch.bucket][batch.places] for batch in plan]
        self._order.batches = self._to_read(chosen)
        rooms: deque[torch.Tensor] = deque(maxlen=self._loader.num_workers * _ROOMS)
        for planned, indices, images in zip(plan, chosen, self._loader, strict=True):
            if isinstance(images, BadSample):
                raise images
            labels = self._labels[indices]
            if self._loader.num_workers and not self._loader.pin_memory:
                rooms.append(images)  # which stay mapped
                images = images.clone()  # the worker will write there again
            images, labels = (tensor.to(self._device, non_blocking=True) for tensor in (images, labels))
            yield Batch(images, labels, planned.whole)

    def _to_read(self, chosen: Sequence[torch.Tensor]) -> Iterator[list[_Item]]:
        """What workers are told of each batch."""
        if self._origin is None:
            yield from (indices.tolist() for indices in chosen)
            return
        source, places = self._origin
        self._stop_reading()  # of an epoch that was not read to its end
        self._ahead = ahead = read_ahead(source, [places[indices] for indices in chosen], self._memory * 5 // 4)
        for indices, encoded in zip(chosen, ahead, strict=True):
            yield list(zip(indices.tolist(), encoded, strict=True))


_Item: TypeAlias = int | tuple[int, bytes | None]
"""A sample, by its number; with its bytes where samples lie in chunks."""


class _Order(Sampler[list[_Item]]):
    """The batches of the epoch at hand; changed between epochs, so that workers live on."""

    def __init__(self) -> None:
        self.batches: Iterator[list[_Item]] = iter(())

    def __iter__(self) -> Iterator[list[_Item]]:
        return self.batches


class _Reader(Dataset[torch.Tensor]):
    """What a worker does: reads or decodes samples, brings them to their grid, stacks them."""

    def __init__(self, source: Source, placement: Placement) -> None:
        self.source = source
        self.placement = placement
        self._room = _Room()

    def __getitems__(self, items: list[_Item]) -> torch.Tensor | BadSample:
        try:
            first = self._read(items[0])
            grid = tuple(first.shape[1:])
            stacked = self._room.take((len(items), *first.shape), first.dtype)
            stacked[0] = first
            for place, item in enumerate(items[1:], 1):
                stacked[place] = self._read(item, grid)
            return stacked
        except BadSample as error:
            return error  # raised in the main process: the loader would wrap it in a page of traceback

    def _read(self, item: _Item, grid: Grid | None = None) -> torch.Tensor:
        if isinstance(item, int):
            return self.placement.read(self.source, item, grid)
        index, encoded = item
        return self.placement.bring(self.source.decode(index, encoded), self.source, index, grid)


class _Room:
    """Where a worker stacks samples: memory that the main process sees, the same few pieces again and again.

    A fresh piece for each batch, page by page from the system, takes a seventh of the time that small images take to
    decode. The main process copies a batch before it asks this worker for the one after the next.
    """

    def __init__(self) -> None:
        self._pieces: list[torch.Tensor] = []
        self._turn = 0

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A tensor to write into; one of its own in the main process."""
        if get_worker_info() is None:
            return torch.empty(shape, dtype=dtype)
        needed = math.prod(shape) * dtype.itemsize
        self._pieces = self._pieces or [torch.empty(0, dtype=torch.uint8) for _ in range(_ROOMS)]
        self._turn = (self._turn + 1) % len(self._pieces)
        if len(self._pieces[self._turn]) < needed:
            self._pieces[self._turn] = _shared_memory(needed)
        return self._pieces[self._turn][:needed].view(dtype).view(shape)


def _shared_memory(size: int) -> torch.Tensor:
    shared: torch.Tensor = torch.empty(size, dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]
    return shared


def _as_read(stacked: Any) -> Any:
    return stacked


def _prepare_worker(worker: int) -> None:
    # A signal to the whole group stops the run when its step is done, and that step may need this worker.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # A process that is killed leaves no worker. The watch of torch begins later than this, and takes whoever adopts an
    # orphan for its parent: a worker that was still starting would wait for ever.
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    # A worker that is ended while its sender thread is inside torch is aborted by the interpreter's own exit (the
    # thread is unwound through C++ that allows no unwinding), so it leaves without one, after all other finalizers.
    Finalize(None, os._exit, args=(0,), exitpriority=-100)


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _end_workers(loader: DataLoader[torch.Tensor]) -> None:
    iterator = loader._iterator
    if isinstance(iterator, _MultiProcessingDataLoaderIter):
        iterator._shutdown_workers()
    loader._iterator = None


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
