"""Processes that read and decode batches, into memory that they share with the process that uses the batches."""

from __future__ import annotations

import atexit
import math
import multiprocessing
import os
import signal
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from arrn.data.placement import Placement
from arrn.data.source import BadSample, Form, Source
from arrn.errors import ArrnError
from arrn.memory import in_gigabytes
from arrn.signal.grid import Grid

_PREFETCHED = 2  # batches that are asked of a worker before they are needed
_SPARE = 1.25  # of a piece's bytes: batches differ a little in the size of their files


@dataclass(frozen=True)
class Wanted:
    """A batch to read.

    Attributes:
        samples: their numbers in the source.
        grid: the grid that they have, once they are placed.
        encoded: their bytes, where samples lie in chunks; None has the worker read them.
    """

    samples: list[int]
    grid: Grid
    encoded: list[bytes | None] | None = None


class Workers:
    """Reads batches one after the other, in processes of its own.

    A batch lies in a piece of shared memory, with the bytes of its samples behind it. A few pieces are used again and
    again: each is sent once, and then its number alone. A fresh piece for each batch, page by page from the system,
    takes a seventh of the time that small images take to decode. Sending a piece takes a file descriptor, for which one
    process waits until a thread of the other answers.

    Args:
        source: of the samples.
        placement: the grid of each size.
        count: of the processes; with 0, this process reads.
    """

    def __init__(self, source: Source, placement: Placement, count: int) -> None:
        self._form = source.form
        # Those that were asked of a worker, and the one that is used meanwhile.
        self._pieces = [torch.empty(0, dtype=torch.uint8)] * max(1, count * (_PREFETCHED + 1))
        self._shared = count > 0
        self._order = _Order()
        # Spawned, not forked: this process has threads, and perhaps a GPU, which a fork does not survive.
        self._loader = DataLoader(
            _Reader(source, placement),
            batch_size=None,  # a sample of the loader is a batch of ours
            sampler=self._order,
            collate_fn=_as_read,
            num_workers=count,
            prefetch_factor=_PREFETCHED if count else None,
            persistent_workers=count > 0,
            multiprocessing_context="spawn" if count else None,
            worker_init_fn=_prepare_worker,
        )
        self._end = weakref.finalize(self, _end_workers, self._loader)
        # When the interpreter exits, before torch has its turn: it would wait for workers that outlive its signals.
        self._end.atexit = False
        atexit.register(self._end)

    def close(self) -> None:
        """Ends the processes."""
        self._end()
        atexit.unregister(self._end)

    def read(self, batches: Iterable[Wanted]) -> Iterator[torch.Tensor]:
        """The samples of each batch, of shape (batch, channels, *grid); each tensor holds until the next is taken.

        Raises:
            BadSample: for a sample that cannot be read.
        """
        assert self._end.alive, "these batches are closed"
        coming: deque[torch.Tensor] = deque()
        self._order.requests = self._requests(batches, coming)
        for error in self._loader:
            if error is not None:
                raise error
            yield coming.popleft()

    def _requests(self, batches: Iterable[Wanted], coming: deque[torch.Tensor]) -> Iterator[_Request]:
        """What workers are told of each batch; where its samples will be goes to `coming`."""
        for number, batch in enumerate(batches):
            shape = (len(batch.samples), self._form.channels, *batch.grid)
            start = math.prod(shape) * self._form.dtype.itemsize
            content = b"".join(part or b"" for part in batch.encoded or ())
            lengths = None if batch.encoded is None else [-1 if part is None else len(part) for part in batch.encoded]
            # Workers take turns, so a piece is always with the same worker.
            piece = number % len(self._pieces)
            fresh = None
            if len(self._pieces[piece]) < start + len(content):
                fresh = self._pieces[piece] = self._memory(start + int(_SPARE * len(content)))
            memory = self._pieces[piece]
            memory.numpy().data[start : start + len(content)] = content
            coming.append(_images(memory, shape, self._form))
            yield _Request(batch.samples, batch.grid, lengths, piece, fresh)

    def _memory(self, size: int) -> torch.Tensor:
        if not self._shared:
            return torch.empty(size, dtype=torch.uint8)
        try:
            storage = torch.UntypedStorage._new_shared(size)  # type: ignore[no-untyped-call]
        except RuntimeError:
            raise ArrnError(
                f"the shared memory of this system (/dev/shm) has no room for a batch of {in_gigabytes(size)}: take "
                "smaller batches, or --workers 0; docker run has --shm-size"
            ) from None
        return torch.empty(0, dtype=torch.uint8).set_(storage)


@dataclass(frozen=True)
class _Request:
    """A batch that a worker shall read.

    Attributes:
        samples: their numbers.
        grid: their grid.
        lengths: bytes of each encoded sample, -1 of one that is not there; they lie one after the other behind the
            place of the batch. None where the worker reads the samples.
        piece: the number of the memory where the batch goes.
        fresh: that memory, where the worker has not seen it yet.
    """

    samples: list[int]
    grid: Grid
    lengths: list[int] | None
    piece: int
    fresh: torch.Tensor | None


def _images(memory: torch.Tensor, shape: tuple[int, ...], form: Form) -> torch.Tensor:
    """The batch at the beginning of a piece of memory."""
    return memory[: math.prod(shape) * form.dtype.itemsize].view(form.dtype).view(shape)


class _Order(Sampler[_Request]):
    """The batches of the epoch at hand; changed between epochs, so that workers live on."""

    def __init__(self) -> None:
        self.requests: Iterator[_Request] = iter(())

    def __iter__(self) -> Iterator[_Request]:
        return self.requests


class _Reader(Dataset["BadSample | None"]):
    """What a worker does: reads or decodes samples, brings them to their grid, and writes them into shared memory."""

    def __init__(self, source: Source, placement: Placement) -> None:
        self._source = source
        self._placement = placement
        self._pieces: dict[int, torch.Tensor] = {}

    def __getitem__(self, request: _Request) -> BadSample | None:
        if request.fresh is not None:
            self._pieces[request.piece] = request.fresh
        form, memory = self._source.form, self._pieces[request.piece]
        images = _images(memory, (len(request.samples), form.channels, *request.grid), form).numpy()
        try:
            for place, sample in enumerate(self._read(request, memory.numpy().data[images.nbytes :])):
                images[place] = sample.numpy()  # an assignment of torch's takes 3 us more
        except BadSample as error:
            return error  # raised in the main process: the loader would wrap it in a page of traceback
        return None

    def _read(self, request: _Request, encoded: memoryview) -> Iterator[torch.Tensor]:
        source, placement = self._source, self._placement
        if request.lengths is None:
            for index in request.samples:
                yield placement.read(source, index, request.grid)
            return
        start = 0
        for index, length in zip(request.samples, request.lengths, strict=True):
            content = None if length < 0 else bytes(encoded[start : start + length])
            yield placement.bring(source.decode(index, content), source, index, request.grid)
            start += max(0, length)


def _as_read(error: Any) -> Any:
    return error


def _prepare_worker(worker: int) -> None:
    # A signal to the whole group stops the run when its step is done, and that step may need this worker.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # A process that is killed leaves no worker. The watch of torch begins later than this, and takes whoever adopts an
    # orphan for its parent: a worker that was still starting would wait for ever.
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    # The interpreter's own exit takes a second to put torch away, so a worker leaves without it, after all finalizers.
    Finalize(None, os._exit, args=(0,), exitpriority=-100)


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _end_workers(loader: DataLoader[BadSample | None]) -> None:
    iterator = loader._iterator
    if isinstance(iterator, _MultiProcessingDataLoaderIter):
        iterator._shutdown_workers()
    loader._iterator = None
