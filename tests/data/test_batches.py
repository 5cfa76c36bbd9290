"""Batches from memory and from disk are the same; processes that read end when they should."""

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import arrn
from arrn.data import (
    BadSample,
    Batches,
    Examined,
    ImageFolder,
    MemoryBatches,
    Placement,
    StreamedBatches,
    examine,
    fits_in_memory,
    load_buckets,
    measure_statistics,
    open_batches,
)
from arrn.nn.network import entry_grid
from arrn.signal import kernel
from pictures import write_folder

CPU = torch.device("cpu")
SIZES = {"cat": [(8, 8), (6, 9), (4, 4), (3, 3), (8, 8)], "dog": [(4, 4), (8, 8), (16, 5), (2, 2)]}


@pytest.fixture
def examined(tmp_path: Path) -> Examined:
    write_folder(tmp_path, SIZES)
    return examine(ImageFolder(tmp_path, "train"))


def placement_of(examined: Examined) -> Placement:
    model = arrn.create_model("arrn", sizes=(8, 4), features=(4, 4), depth=1)
    return Placement.by(lambda size: entry_grid(model, size), examined.sizes, kernel("perfect"))


def contents(batches: Batches, epoch: int, start: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(batch.images.clone(), batch.labels.clone()) for batch in batches.epoch(epoch, start)]


def assert_same(one: list[tuple[torch.Tensor, torch.Tensor]], other: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    assert len(one) == len(other)
    for (images, labels), (other_images, other_labels) in zip(one, other, strict=True):
        assert torch.equal(images, other_images)
        assert torch.equal(labels, other_labels)


def test_each_batch_is_of_one_grid_and_every_sample_has_its_label(examined: Examined) -> None:
    batches = open_batches(examined, placement_of(examined), batch_size=2, device=CPU, stream=False)
    assert batches.grids == ((8, 8), (4, 4))
    assert batches.counts == (5, 4)
    source, placement = examined.source, placement_of(examined)
    expected = {placement.read(source, n).numpy().tobytes(): int(source.labels[n]) for n in range(len(source))}
    seen = 0
    for batch in batches.epoch(0):
        assert tuple(batch.images.shape[2:]) in batches.grids
        assert batch.images.dtype == torch.uint8
        for image, label in zip(batch.images, batch.labels, strict=True):
            assert expected[image.contiguous().numpy().tobytes()] == int(label)
            seen += 1
    assert seen == len(source)


def test_memory_and_disk_give_the_same_batches_in_the_same_order(examined: Examined) -> None:
    placement = placement_of(examined)
    memory = MemoryBatches(load_buckets(examined, placement, CPU), 2, seed=3)
    with StreamedBatches(examined, placement, 2, 3, CPU, workers=0) as streamed:
        assert (streamed.grids, streamed.counts, len(streamed)) == (memory.grids, memory.counts, len(memory))
        for epoch in (0, 1):
            assert_same(contents(memory, epoch), contents(streamed, epoch))
        in_order = [[(b.images, b.labels) for b in batches.in_order()] for batches in (memory, streamed)]
        assert_same(*in_order)


def test_an_epoch_goes_on_from_any_of_its_batches(examined: Examined) -> None:
    batches = open_batches(examined, placement_of(examined), batch_size=2, device=CPU, seed=1, stream=False)
    whole = contents(batches, 4)
    for start in range(len(batches) + 1):
        assert_same(contents(batches, 4, start), whole[start:])


def test_worker_processes_give_the_same_batches_and_end_with_close(examined: Examined) -> None:
    placement = placement_of(examined)
    memory = MemoryBatches(load_buckets(examined, placement, CPU), 2, seed=3)
    before = set(multiprocessing.active_children())
    with StreamedBatches(examined, placement, 2, 3, CPU, workers=2) as streamed:
        next(streamed.epoch(7))  # an epoch that was not read to its end leaves nothing behind in the next
        assert_same(contents(memory, 0), contents(streamed, 0))
        assert_same(contents(memory, 1, 2), contents(streamed, 1, 2))
        workers = set(multiprocessing.active_children()) - before
        assert len(workers) == 2
    deadline = time.monotonic() + 10
    while set(multiprocessing.active_children()) & workers and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not set(multiprocessing.active_children()) & workers


FORGETFUL = """
import sys, torch
from arrn.data import ImageFolder, Placement, StreamedBatches, examine

if __name__ == "__main__":
    examined = examine(ImageFolder(sys.argv[1], "train"))
    batches = StreamedBatches(examined, Placement.unchanged(examined.sizes), 2, 0, torch.device("cpu"), workers=1)
    epoch = batches.epoch(0)
    next(epoch)
"""


def test_a_program_that_forgets_to_close_them_ends_all_the_same(tmp_path: Path) -> None:
    write_folder(tmp_path / "data", SIZES)
    (tmp_path / "forgetful.py").write_text(FORGETFUL)
    quiet = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, str(tmp_path / "forgetful.py"), str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=quiet, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_death_of_a_worker_is_one_line(examined: Examined) -> None:
    before = set(multiprocessing.active_children())
    with StreamedBatches(examined, placement_of(examined), 2, 0, CPU, workers=1) as batches:
        next(batches.epoch(0))
        (worker,) = set(multiprocessing.active_children()) - before
        worker.kill()
        worker.join()
        with pytest.raises(arrn.ArrnError, match=r"^a process that reads samples died: did the memory run out\?$"):
            list(batches.epoch(1))


def test_too_little_shared_memory_is_one_line(examined: Examined, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(size: int) -> None:
        raise RuntimeError(f"unable to allocate shared memory: {size}")

    monkeypatch.setattr(torch.UntypedStorage, "_new_shared", full)
    with (
        StreamedBatches(examined, placement_of(examined), 2, 0, CPU, workers=1) as batches,
        pytest.raises(arrn.ArrnError, match=r"has no room for a batch of .* GB: take smaller batches, or --workers 0"),
    ):
        next(batches.epoch(0))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_sample_that_streaming_meets_is_named(tmp_path: Path, workers: int) -> None:
    write_folder(tmp_path, {"a": [(4, 4)] * 3})
    examined = examine(ImageFolder(tmp_path, "train"))
    bad = tmp_path / "a" / "1.png"
    bad.write_bytes(bad.read_bytes()[:60])  # its header is as it was
    with (
        StreamedBatches(examined, Placement.unchanged(examined.sizes), 2, 0, CPU, workers) as batches,
        pytest.raises(BadSample, match=r"1\.png: cannot be decoded"),
    ):
        list(batches.epoch(0))


def test_an_image_that_grew_while_streaming_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a": [(4, 4), (4, 4), (6, 6)]})
    examined = examine(ImageFolder(tmp_path, "train"))
    write_folder(tmp_path, {"a": [(4, 4), (6, 6)]})
    with (
        StreamedBatches(examined, Placement.unchanged(examined.sizes), 3, 0, CPU, 0) as batches,
        pytest.raises(BadSample, match=r"\.png: its size is now .: the file was changed during the run"),
    ):
        list(batches.in_order())


def test_a_bad_sample_that_loading_meets_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a": [(4, 4)] * 3})
    examined = examine(ImageFolder(tmp_path, "train"))
    (tmp_path / "a" / "2.png").unlink()
    with pytest.raises(BadSample, match=r"2\.png: no such file"):
        load_buckets(examined, Placement.unchanged(examined.sizes), CPU)


def test_loading_tells_how_far_it_is(examined: Examined) -> None:
    told: list[int] = []
    load_buckets(examined, placement_of(examined), CPU, told.append)
    assert told == [9]  # one chunk


def test_what_does_not_fit_in_memory_streams(examined: Examined, monkeypatch: pytest.MonkeyPatch) -> None:
    placement = placement_of(examined)
    need = 3 * (5 * 64 + 4 * 16)
    for free, fits in ((need / 0.4 + 1, True), (need / 0.4 - 1, False)):
        monkeypatch.setattr("arrn.data.placement.free_memory", lambda device, free=free: free)
        assert fits_in_memory(examined, placement, CPU) == fits
        with open_batches(examined, placement, batch_size=2, device=CPU, workers=0) as batches:
            assert isinstance(batches, MemoryBatches if fits else StreamedBatches)


def test_statistics_are_those_of_all_pixels(examined: Examined) -> None:
    placement = placement_of(examined)
    batches = open_batches(examined, placement, batch_size=2, device=CPU, stream=False)
    placed = [placement.read(examined.source, n).flatten(1) for n in range(len(examined.source))]
    pixels = torch.cat(placed, dim=1).double() / 255
    mean, std = measure_statistics(batches)
    torch.testing.assert_close(torch.tensor(mean).double(), pixels.mean(dim=1), atol=1e-6, rtol=0)
    torch.testing.assert_close(torch.tensor(std).double(), pixels.std(dim=1, correction=0), atol=1e-5, rtol=0)


def test_constant_images_cannot_be_normalised() -> None:
    grey = arrn.data.Bucket(torch.full((1, 3, 4, 4), 128, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64))
    with pytest.raises(arrn.ArrnError, match="constant"):
        measure_statistics(MemoryBatches([grey], 4, 0))
