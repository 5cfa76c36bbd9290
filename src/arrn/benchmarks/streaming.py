"""Streamed shards beside the same samples in memory and beside decoding alone, and the memory that streaming takes.

The set is a folder of parquet shards, copied as often as it takes to reach a size. Each way is measured in processes of
its own, which take turns, so that the ratios are of one run and one way's memory is not another's. The processes that
decode are fresh in each round: one decodes up to a fifth faster than another, by how its memory lies.
"""

from __future__ import annotations

import multiprocessing
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count, cycle, islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from arrn.benchmarks.measurement import Fact, Measurement
from arrn.benchmarks.settings import BenchmarkSettings
from arrn.data import (
    Batches,
    Bucket,
    ChunkedSource,
    Examined,
    MemoryBatches,
    Placement,
    StoredFile,
    examine,
    load_buckets,
    open_batches,
    open_dataset,
)
from arrn.data.shards import PARQUET, ShardFolder
from arrn.data.windows import WINDOW_BYTES
from arrn.errors import ArrnError, RunError, first_line
from arrn.malloc import keep_freed_memory
from arrn.memory import children_of, free_memory, in_gigabytes, process_memory
from arrn.signal.kernels import kernel
from arrn.timing import Timing

STREAMED, IN_MEMORY, DECODING = "streamed", "in memory", "decoding alone"

_ROUNDS = 9
_SHARE_OF_SECONDS = 3 * _ROUNDS  # of the settings' seconds, in each round and way
_BATCH = 128
_DECODED = 2000  # different samples that are decoded again and again
_IN_MEMORY_SHARE = 0.25  # of the memory that is free
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class _Rate:
    """What a way did in a round."""

    samples: int
    seconds: float


_Take = Callable[[float], _Rate]
"""Takes samples for so many seconds."""


def training_shards(folder: Path) -> list[StoredFile]:
    """The parquet shards of a folder's training split.

    Raises:
        ArrnError: where there are none.
    """
    found = ShardFolder(str(folder)).find("train", PARQUET)
    if not found:
        raise ArrnError(f"{folder} holds no training shards, files such as train-00000.parquet, for --data")
    return found[0]


def repeat_shards(shards: Sequence[StoredFile], folder: Path, size: float) -> int:
    """Copies shards, one after another and again from the first, until the copies in the folder have `size` bytes.

    Args:
        shards: to copy.
        folder: of the copies; those that are there from a smaller size are kept.
        size: bytes of all copies together.

    Returns:
        How many copies there are.

    Raises:
        ArrnError: where the disk has too little room.
    """
    there = sorted(folder.glob(f"train-*{PARQUET}"))
    have = sum(file.stat().st_size for file in there)
    missing, free = size - have, shutil.disk_usage(folder).free
    if missing > 0.95 * free:
        raise ArrnError(
            f"{folder} has {in_gigabytes(free)} of disk free, and the copies take {in_gigabytes(missing)}: give less "
            "with --gigabytes, or set TMPDIR to a folder on a larger disk"
        )
    for number, shard in islice(enumerate(cycle(shards)), len(there), None):
        if have >= size:
            return number
        shutil.copyfile(shard.address, folder / f"train-{number:06d}{PARQUET}")
        have += shard.size
    raise AssertionError("a cycle has no end")


def benchmark_streaming(settings: BenchmarkSettings, say: Callable[[str], None]) -> list[Measurement]:
    """Samples a second of each way, for sets of each size; and the memory of the processes that stream.

    Args:
        settings: its `data` is repeated to each of `gigabytes`, and `workers` processes decode.
        say: told what is measured now.

    Raises:
        ArrnError: without a folder of parquet shards, or where the disk has too little room.
    """
    if settings.data is None:
        raise ArrnError("arrn benchmark data repeats a folder of parquet shards: give --data FOLDER")
    shards = training_shards(settings.data)
    found = []
    with tempfile.TemporaryDirectory(prefix="arrn-data-") as scratch:
        for gigabytes in sorted(settings.gigabytes):
            say(f"copying {settings.data} to {gigabytes:g} GB in {scratch}")
            copies = repeat_shards(shards, Path(scratch), gigabytes * 1e9)
            case = f"{gigabytes:g} GB of {settings.data.name}"
            found += _measure(case, Path(scratch), copies / len(shards), settings, say)
    return found


def _measure(
    case: str, folder: Path, copies: float, settings: BenchmarkSettings, say: Callable[[str], None]
) -> list[Measurement]:
    workers, rounds, seconds = settings.workers, _ROUNDS, settings.seconds / _SHARE_OF_SECONDS
    if settings.quick:
        rounds, seconds = 2, min(seconds, 0.2)
    data = str(settings.data)
    times: dict[str, list[float]] = {way: [] for way in (DECODING, STREAMED, IN_MEMORY)}
    facts: dict[str, dict[str, Fact]] = {way: {} for way in times}
    say(f"{case}: decoding what is kept in memory")
    with _helper(_in_memory, data, copies) as held:
        for number in range(rounds):
            say(f"{case}: round {number + 1} of {rounds}")
            with ExitStack() as opened:
                decoders = [opened.enter_context(_helper(_decoding, data)) for _ in range(max(1, workers))]
                streamer = opened.enter_context(_helper(_streaming, str(folder), workers))
                _take([streamer], 0.0)  # until the window is full
                for way, helpers in {DECODING: decoders, STREAMED: [streamer], IN_MEMORY: [held]}.items():
                    times[way].append(1 / _take(helpers, seconds))
                    facts[way] = helpers[0].facts | facts[way]  # the first opening takes the longest
                if number == rounds - 1:
                    say(f"{case}: streaming on, for the memory that it takes in the long run")
                    _take([streamer], rounds * seconds)
                    facts[STREAMED] |= streamer.memory()
    first = statistics.median(times[DECODING])
    found = []
    for way, each in times.items():
        median = statistics.median(each)
        told: dict[str, Fact] = {"workers": workers, "samples_a_second": 1 / median, **facts[way]}
        found.append(Measurement("data", case, way, _timing(each), None, first / median, None, told))
    return found


def _timing(each: Sequence[float]) -> Timing:
    lower, median, upper = statistics.quantiles(each, n=4, method="inclusive")
    return Timing(median, lower, upper)


def _take(helpers: Sequence[_Helper], seconds: float) -> float:
    """Samples a second of some processes that work at the same time."""
    for helper in helpers:
        helper.ask(seconds)
    rates: list[_Rate] = [helper.answer() for helper in helpers]
    return sum(rate.samples / rate.seconds for rate in rates)


class _Helper:
    """A process that does one kind of work, for so many seconds whenever it is asked to.

    Attributes:
        facts: what it told as it was ready.
    """

    def __init__(self, pipe: Connection, process: int) -> None:
        self._pipe, self._process = pipe, process
        self.facts: dict[str, Fact] = self.answer()

    def ask(self, seconds: float) -> None:
        self._pipe.send(seconds)

    def answer(self) -> Any:
        try:
            answer = self._pipe.recv()
        except EOFError:
            raise RunError("a process of the benchmark died: did the memory run out?") from None
        if isinstance(answer, ArrnError):
            raise answer
        return answer

    def memory(self) -> dict[str, Fact]:
        """Bytes of the process and of its workers; nothing on systems that do not tell."""
        own, workers = process_memory(self._process), list(map(process_memory, children_of(self._process)))
        if own is None:
            return {}
        known = [worker for worker in workers if worker is not None]
        return {
            "main_memory": own.resident,
            "main_memory_peak": own.peak,
            "worker_memory": max((worker.resident for worker in known), default=0),
            "all_memory": sum(each.proportional for each in (own, *known)),
        }


@contextmanager
def _helper(make: Callable[..., AbstractContextManager[_Take]], *arguments: object) -> Iterator[_Helper]:
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_help, args=(theirs, make, arguments))
    process.start()
    theirs.close()
    assert process.pid is not None
    try:
        yield _Helper(ours, process.pid)
    finally:
        ours.close()
        process.join(10)
        process.kill()
        process.join()


def _help(pipe: Connection, make: Callable[..., AbstractContextManager[_Take]], arguments: tuple[object, ...]) -> None:
    """What a helper does: it gets ready, tells its facts, and works when it is asked to, until nobody asks any more."""
    keep_freed_memory()  # as the command line does
    torch.set_num_threads(1)
    facts: dict[str, Fact] = {}
    try:
        with make(facts, *arguments) as take:
            pipe.send(facts)
            while True:
                pipe.send(take(pipe.recv()))
    except (EOFError, BrokenPipeError):
        return
    except ArrnError as error:
        pipe.send(RunError(first_line(error)))


@contextmanager
def _decoding(facts: dict[str, Fact], folder: str) -> Generator[_Take]:
    """Decodes samples whose bytes are in memory, and does nothing else: the floor of whatever must decode them."""
    source = open_dataset(folder).train
    assert isinstance(source, ChunkedSource)
    encoded: list[tuple[int, bytes | None]] = []
    for chunk in range(len(source.lengths)):
        encoded += zip(source.samples_of(chunk), source.read_chunk(chunk), strict=True)
        if len(encoded) >= _DECODED:
            break
    samples = cycle(encoded[:_DECODED])

    def take(seconds: float) -> _Rate:
        began = time.perf_counter()
        for number in count():
            elapsed = time.perf_counter() - began
            if elapsed > seconds and number:
                return _Rate(number, elapsed)
            source.decode(*next(samples))
        raise AssertionError("counting has no end")

    yield take


@contextmanager
def _in_memory(facts: dict[str, Fact], folder: str, copies: float) -> Generator[_Take]:
    """Batches of samples that were decoded before, as often repeated as a quarter of the free memory holds."""
    examined = examine(open_dataset(folder).train)
    (bucket,) = load_buckets(examined, _on_one_grid(examined), _CPU)
    most = _IN_MEMORY_SHARE * free_memory(_CPU) / bucket.images.nbytes
    times = max(1, int(min(copies, most)))
    repeated = Bucket(bucket.images.repeat(times, 1, 1, 1), bucket.labels.repeat(times))
    facts |= {"samples": len(repeated), "bytes": repeated.images.nbytes}
    yield _taking_batches(MemoryBatches([repeated], _BATCH, seed=0), settling=1)


@contextmanager
def _streaming(facts: dict[str, Fact], folder: str, workers: int) -> Generator[_Take]:
    """Batches of samples that are read and decoded as they are needed."""
    began = time.perf_counter()
    source = open_dataset(folder).train
    opened = time.perf_counter()
    examined = examine(source)
    looked = time.perf_counter()
    assert isinstance(source, ChunkedSource)
    stored = sum(source.weights)
    facts |= {"samples": len(source), "bytes": stored, "opening": opened - began, "looking": looked - opened}
    placement = _on_one_grid(examined)
    with open_batches(examined, placement, batch_size=_BATCH, device=_CPU, stream=True, workers=workers) as batches:
        epoch = _taking_batches(batches, settling=8 * max(1, workers))
        window = len(source) * min(1.0, WINDOW_BYTES / stored)

        def take(seconds: float) -> _Rate:
            if seconds:
                return epoch(seconds)
            # As far as the window reaches.
            rate = _Rate(0, 0.0)
            while rate.samples < window:
                more = epoch(0.2)
                rate = _Rate(rate.samples + more.samples, rate.seconds + more.seconds)
            return rate

        yield take


def _on_one_grid(examined: Examined) -> Placement:
    """Takes samples of other sizes to the commonest one."""
    ((grid, _),) = Counter(examined.sizes).most_common(1)
    return Placement.by(lambda size: grid, examined.sizes, kernel("perfect"))


def _taking_batches(batches: Batches, settling: int) -> _Take:
    """Takes batches of one epoch after another; the first ones, which may be ready, are not counted."""
    following = (batch for epoch in count() for batch in batches.epoch(epoch))

    def take(seconds: float) -> _Rate:
        for _ in range(settling):
            next(following)
        began, samples = time.perf_counter(), 0
        while True:
            samples += len(next(following).labels)
            elapsed = time.perf_counter() - began
            if elapsed > seconds:
                return _Rate(samples, elapsed)

    return take
