"""Processes that read and decode batches, into memory that they share with the process that uses the batches."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize

import torch

from arrn.data.placement import Placement
from arrn.data.source import Form, Source
from arrn.errors import ArrnError, RunError
from arrn.memory import in_gigabytes
from arrn.signal.grid import Grid

_PIECES = 3  # of memory for each worker: one that it fills, and others for batches that come next or are used
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

    Each batch goes to the process that has the least to do. Processes that took turns would all be as slow as the one
    that shares its core with this process.

    A batch lies in a piece of shared memory, with the bytes of its samples behind it. A few pieces are used again and
    again: a process gets each once, and then its number alone. A fresh piece for each batch, page by page from the
    system, takes a seventh of the time that small images take to decode. Sending a piece takes a file descriptor, for
    which one process waits until a thread of the other answers.

    A pipe to each process is all that this needs: the threads and queues of a `DataLoader` take time from the processes
    that decode.

    Args:
        source: of the samples.
        placement: the grid of each size.
        count: of the processes, which start with the first batch; with 0, this process reads.
    """

    def __init__(self, source: Source, placement: Placement, count: int) -> None:
        self._form, self._count = source.form, count
        self._reader = _Reader(source, placement)
        self._pieces = [torch.empty(0, dtype=torch.uint8)] * max(1, count * _PIECES)
        self._workers: list[_Worker] = []
        self._coming: deque[tuple[_Worker | _Here, torch.Tensor]] = deque()
        # Before the interpreter's exit waits for processes, which outlive its signals.
        self._end = Finalize(self, _end_workers, (self._workers,), exitpriority=0)

    def close(self) -> None:
        """Ends the processes."""
        self._end()

    def read(self, batches: Iterable[Wanted]) -> Iterator[torch.Tensor]:
        """The samples of each batch, of shape (batch, channels, *grid); each tensor holds until the next is taken.

        Raises:
            BadSample: for a sample that cannot be read.
        """
        assert self._end.still_active(), "these batches are closed"
        while len(self._workers) < self._count:
            self._workers.append(_Worker(self._reader))
        workers: Sequence[_Worker | _Here] = self._workers or [_Here(self._reader)]
        while self._coming:  # of batches that were not read to their end
            self._coming.popleft()[0].answer()
        for number, batch in enumerate(batches):
            request, images = self._request(batch, number % len(self._pieces))
            worker = min(workers, key=lambda each: each.waiting())
            worker.ask(request)
            self._coming.append((worker, images))
            if len(self._coming) == len(self._pieces):
                yield self._next()
        while self._coming:
            yield self._next()

    def _next(self) -> torch.Tensor:
        worker, images = self._coming.popleft()
        error = worker.answer()
        if error is not None:
            raise error
        return images

    def _request(self, batch: Wanted, piece: int) -> tuple[_Request, torch.Tensor]:
        """What a worker is told of a batch, and where the samples of the batch will be."""
        shape = (len(batch.samples), self._form.channels, *batch.grid)
        start = math.prod(shape) * self._form.dtype.itemsize
        content = b"".join(part or b"" for part in batch.encoded or ())
        lengths = None if batch.encoded is None else [-1 if part is None else len(part) for part in batch.encoded]
        if len(self._pieces[piece]) < start + len(content):
            self._pieces[piece] = self._memory(start + int(_SPARE * len(content)))
        memory = self._pieces[piece]
        memory.numpy().data[start : start + len(content)] = content
        return _Request(batch.samples, batch.grid, lengths, piece, memory), _images(memory, shape, self._form)

    def _memory(self, size: int) -> torch.Tensor:
        if not self._count:
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
        memory: that memory; None where the worker knows it.
    """

    samples: list[int]
    grid: Grid
    lengths: list[int] | None
    piece: int
    memory: torch.Tensor | None


def _images(memory: torch.Tensor, shape: tuple[int, ...], form: Form) -> torch.Tensor:
    """The batch at the beginning of a piece of memory."""
    return memory[: math.prod(shape) * form.dtype.itemsize].view(form.dtype).view(shape)


class _Reader:
    """Reads or decodes the samples of batches, brings them to their grid, and writes them into their memory."""

    def __init__(self, source: Source, placement: Placement) -> None:
        self._source = source
        self._placement = placement
        self._pieces: dict[int, torch.Tensor] = {}

    def __call__(self, request: _Request) -> ArrnError | None:
        """Writes the samples of a batch; returns what is wrong with one of them."""
        if request.memory is not None:
            self._pieces[request.piece] = request.memory
        source, placement = self._source, self._placement
        memory = self._pieces[request.piece]
        images = _images(memory, (len(request.samples), source.form.channels, *request.grid), source.form)
        contents = memory.numpy().data[images.nbytes :]
        start = 0
        try:
            for place, (room, index) in enumerate(zip(images.unbind(), request.samples, strict=True)):
                if request.lengths is None:
                    sample = source.read(index)
                else:
                    length = request.lengths[place]
                    content = None if length < 0 else bytes(contents[start : start + length])
                    sample = source.decode(index, content, room)
                    start += max(0, length)
                sample = placement.bring(sample, source, index, request.grid)
                if sample is not room:  # it was not decoded there
                    room.numpy()[:] = sample.numpy()  # an assignment of torch's takes 3 us more
        except ArrnError as error:
            return error
        return None


class _Here:
    """Stands where a worker would, and reads batches in this process, when they are needed."""

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader
        self._asked: deque[_Request] = deque()

    def waiting(self) -> int:
        return len(self._asked)

    def ask(self, request: _Request) -> None:
        self._asked.append(request)

    def answer(self) -> ArrnError | None:
        return self._reader(self._asked.popleft())


class _Worker:
    """A process that reads batches."""

    def __init__(self, reader: _Reader) -> None:
        # Spawned, not forked: this process has threads, and perhaps a GPU, which a fork does not survive.
        spawning = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawning.Pipe()
        self._process: BaseProcess = spawning.Process(target=_work, args=(theirs, reader), daemon=True)
        self._process.start()
        theirs.close()
        self._sent: dict[int, torch.Tensor | None] = {}
        self._waiting = 0
        self._answers: deque[ArrnError | None] = deque()

    def waiting(self) -> int:
        """The number of batches that the worker has still to read."""
        while self._waiting and self._pipe.poll():
            self._receive()
        return self._waiting

    def ask(self, request: _Request) -> None:
        """Has the worker read a batch after those that it was asked for before."""
        if self._sent.get(request.piece) is request.memory:
            request = replace(request, memory=None)
        else:
            self._sent[request.piece] = request.memory
        with _alive():
            self._pipe.send(request)
        self._waiting += 1

    def answer(self) -> ArrnError | None:
        """Waits until the first batch that was asked for is there; what is wrong with one of its samples."""
        if not self._answers:
            self._receive()
        return self._answers.popleft()

    def _receive(self) -> None:
        with _alive():
            self._answers.append(self._pipe.recv())
        self._waiting -= 1

    def end(self) -> None:
        """Ends the process at once: what it has to do is not needed, and torch would take a second to be put away."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


@contextmanager
def _alive() -> Iterator[None]:
    """Around what needs a worker."""
    try:
        yield
    except (EOFError, ConnectionError):
        raise RunError("a process that reads samples died: did the memory run out?") from None


def _end_workers(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.end()


def _work(pipe: Connection, reader: _Reader) -> None:
    """What a worker does until the process that asks is gone, be it killed."""
    # A signal to the whole group stops the run when its step is done, and that step may need this worker.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    with suppress(EOFError, ConnectionError):
        while True:
            pipe.send(reader(pipe.recv()))
    os._exit(0)
