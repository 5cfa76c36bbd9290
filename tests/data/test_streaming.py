"""Streamed shards, as laws: each sample once over any processes and workers, the same order, exact resumption."""

import multiprocessing
import signal
import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
import torch

import arrn
from arrn.data import (
    BadSample,
    Batches,
    ChunkedSource,
    Examined,
    MemoryBatches,
    Order,
    Placement,
    StreamedBatches,
    Windows,
    examine,
    hold_out,
    open_batches,
    open_dataset,
)
from arrn.data.read_ahead import read_ahead
from arrn.nn.network import entry_grid
from arrn.signal import kernel
from arrn.teamwork import Team
from shards import number_of, write_shards

CPU = torch.device("cpu")
KINDS = ("parquet", "tar")
COUNTS = (17, 1, 12, 25)
LANES = Windows(3, 4)


@pytest.fixture(params=KINDS)
def examined(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Examined:
    monkeypatch.setattr("arrn.data.tars._CHUNK_BYTES", 3000)  # some four samples
    write_shards(tmp_path, request.param, COUNTS)
    return examine(open_dataset(str(tmp_path)).train)


def stream(
    examined: Examined, order: Order | None = LANES, workers: int = 0, rank: int = 0, size: int = 1, batch_size: int = 8
) -> Batches:
    placement = Placement.unchanged(examined.sizes)
    return open_batches(
        examined,
        placement,
        batch_size=batch_size,
        device=CPU,
        seed=5,
        stream=True,
        workers=workers,
        team=Team(rank, size),
        order=order,
    )


def numbers(batches: Batches, epoch: int = 0, start: int = 0) -> list[list[int]]:
    found = []
    for batch in batches.epoch(epoch, start):
        found.append([number_of(image) for image in batch.images])
        assert batch.labels.tolist() == [number % 2 for number in found[-1]]
    return found


@pytest.mark.parametrize("order", [LANES, Windows(1, 0), Windows(8, 1000)])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_each_sample_comes_once_an_epoch_over_any_processes(examined: Examined, order: Order, size: int) -> None:
    shares = [numbers(stream(examined, order, rank=rank, size=size)) for rank in range(size)]
    assert sorted(n for share in shares for batch in share for n in batch) == list(range(sum(COUNTS)))
    # Batches are those of one process, shared evenly.
    whole = numbers(stream(examined, order))
    together = [sorted(chain.from_iterable(parts)) for parts in zip(*shares, strict=True)]
    assert together == list(map(sorted, whole))
    assert all(max(map(len, each)) - min(map(len, each)) <= 1 for each in zip(*shares, strict=True))


def test_worker_processes_change_nothing(examined: Examined) -> None:
    with stream(examined) as alone, stream(examined, workers=2) as helped:
        next(helped.epoch(7))  # an epoch that was not read to its end leaves nothing behind in the next
        for epoch in (0, 1):
            assert numbers(helped, epoch) == numbers(alone, epoch)
        assert numbers(helped, 2, start=3) == numbers(alone, 2)[3:]
        # Workers write into the same memory again; what was given out stays as it is.
        kept, expected = list(helped.epoch(3)), list(alone.epoch(3))
        assert all(torch.equal(a.images, b.images) for a, b in zip(kept, expected, strict=True))
    assert not multiprocessing.active_children()


def test_seeds_and_epochs_differ_and_repeat(examined: Examined) -> None:
    assert numbers(stream(examined)) == numbers(stream(examined))
    assert numbers(stream(examined)) != numbers(stream(examined), epoch=1)


def test_an_epoch_goes_on_with_the_samples_that_were_not_seen(examined: Examined) -> None:
    whole = numbers(stream(examined), epoch=3)
    for start in range(len(whole) + 1):
        for size in (1, 2):  # over other processes than before, too
            shares = [numbers(stream(examined, rank=rank, size=size), 3, start) for rank in range(size)]
            left = sorted(n for share in shares for batch in share for n in batch)
            assert left == sorted(n for batch in whole[start:] for n in batch)
    assert sum(map(len, whole)) == sum(COUNTS)


def test_in_order_every_sample_comes_once_over_any_processes(examined: Examined) -> None:
    for size in (1, 3):
        shares = [list(stream(examined, rank=rank, size=size).in_order()) for rank in range(size)]
        assert [number_of(image) for share in shares for batch in share for image in batch.images] == list(
            range(sum(COUNTS))
        )


def test_a_run_that_goes_on_in_memory_keeps_its_order(examined: Examined) -> None:
    placement = Placement.unchanged(examined.sizes)
    for order in (LANES, "whole"):
        kept = open_batches(examined, placement, batch_size=8, device=CPU, seed=5, stream=False, order=order)
        assert isinstance(kept, MemoryBatches)
        assert kept.order == order
        assert numbers(kept) == numbers(stream(examined, order))
        assert len(kept) == len(numbers(kept))


def test_images_of_several_grids_come_once(tmp_path: Path) -> None:
    write_shards(tmp_path, "parquet", COUNTS, sizes=[(8, 8), (4, 4), (3, 3), (8, 8), (8, 8)])
    examined = examine(open_dataset(str(tmp_path)).train)
    model = arrn.create_model("arrn", sizes=(8, 4), features=(4, 4), depth=1)
    placement = Placement.by(lambda size: entry_grid(model, size), examined.sizes, kernel("perfect"))
    batches = StreamedBatches(examined, placement, 8, 0, CPU, workers=0)
    assert batches.grids == ((8, 8), (4, 4))
    batches = open_batches(examined, placement, batch_size=8, device=CPU, stream=True, workers=0, order=LANES)
    seen = [image.tobytes() for batch in batches.epoch(0) for image in batch.images.numpy()]
    source = examined.source
    placed = [placement.read(source, n).numpy().tobytes() for n in range(len(source))]
    assert Counter(seen) == Counter(placed)


def test_what_is_held_out_is_not_trained_on(examined: Examined) -> None:
    rest, held_out = hold_out(examined.source, 10, seed=0)
    parts = [examine(part) for part in (rest, held_out)]
    seen = [sorted(n for batch in numbers(stream(part)) for n in batch) for part in parts]
    assert len(seen[1]) == 10
    assert sorted(seen[0] + seen[1]) == list(range(sum(COUNTS)))


class Counting:
    """Counts how often each chunk of a source is read."""

    def __init__(self, source: ChunkedSource, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads: Counter[int] = Counter()
        read = source.read_chunk

        def counted(chunk: int, given_up: object = None) -> object:
            self.reads[chunk] += 1
            return read(chunk)

        monkeypatch.setattr(source, "read_chunk", counted)


def test_each_chunk_is_read_once_an_epoch(examined: Examined, monkeypatch: pytest.MonkeyPatch) -> None:
    source = examined.source
    assert isinstance(source, ChunkedSource)
    counting = Counting(source, monkeypatch)
    numbers(stream(examined))
    assert counting.reads == dict.fromkeys(range(len(source.lengths)), 1)
    assert len(source.lengths) > len(COUNTS)


def test_no_more_is_kept_than_the_limit_and_what_was_dropped_is_read_again(
    examined: Examined, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = examined.source
    assert isinstance(source, ChunkedSource)
    counting = Counting(source, monkeypatch)
    batches = list(torch.randperm(len(source)).split(5))
    found = [encoded for batch in read_ahead(source, batches, memory=500) for encoded in batch]
    decoded = [number_of(source.codec.decode(each, "")) for each in found if each is not None]
    assert decoded == torch.cat(batches).tolist()
    assert max(counting.reads.values()) > 1


# Killed as soon as it has a worker, which still imports torch then.
KILLED = """
import multiprocessing, os, signal, sys, threading
import torch
from arrn.data import Placement, examine, open_batches, open_dataset

if __name__ == "__main__":
    examined = examine(open_dataset(sys.argv[1]).train)
    batches = open_batches(
        examined, Placement.unchanged(examined.sizes), batch_size=8, device=torch.device("cpu"), stream=True, workers=1
    )
    threading.Thread(target=next, args=(batches.epoch(0),), daemon=True).start()
    while not (workers := multiprocessing.active_children()):
        pass
    threading.Event().wait(0.2)
    print(workers[0].pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_is_killed_leaves_no_worker(tmp_path: Path) -> None:
    write_shards(tmp_path / "set", "tar", [6])
    (tmp_path / "killed.py").write_text(KILLED)
    command = [sys.executable, str(tmp_path / "killed.py"), str(tmp_path / "set")]
    # Its end is that of the pipe, which the worker has, too.
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL
    assert int(done.stdout) > 0


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sample_that_cannot_be_decoded_is_named_with_its_shard(tmp_path: Path, workers: int) -> None:
    write_shards(tmp_path, "tar", [6])
    examined = examine(open_dataset(str(tmp_path)).train)
    content = bytearray((tmp_path / "train-0000.tar").read_bytes())
    place = content.index(b"IDAT", content.index(b"000004.png"))
    content[place + 6 : place + 10] = b"\xff\xff\xff\xff"
    (tmp_path / "train-0000.tar").write_bytes(content)
    with (
        stream(examined, workers=workers) as batches,
        pytest.raises(BadSample, match=r"train-0000\.tar sample 000004: cannot be decoded"),
    ):
        list(batches.epoch(0))
