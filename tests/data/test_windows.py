"""The order of samples in chunks, as laws: each once, from a seed alone, few chunks at a time, well mixed."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arrn.data.windows import ChunkedOrder, Windows

lengths = st.lists(st.integers(0, 30), min_size=1, max_size=12).filter(any)
windows = st.builds(Windows, st.integers(1, 9), st.integers(0, 40))


def order_of(windows: Windows, lengths: list[int], grids: int = 1) -> ChunkedOrder:
    """Of samples whose grids take turns unevenly."""
    chunk_of = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    bucket_of = torch.arange(len(chunk_of)) ** 2 % grids
    return ChunkedOrder.of(windows, chunk_of, [torch.nonzero(bucket_of == n)[:, 0] for n in range(grids)])


@given(windows, lengths, st.integers(1, 3), st.integers(1, 20), st.integers(0, 2**40), st.integers(0, 99))
def test_an_epoch_has_every_sample_exactly_once(
    windows: Windows, lengths: list[int], grids: int, size: int, seed: int, epoch: int
) -> None:
    order = order_of(windows, lengths, grids)
    plan = order.epoch(size, seed, epoch)
    seen = Counter((batch.bucket, place) for batch in plan for place in batch.places.tolist())
    assert seen == Counter((bucket, place) for bucket, count in enumerate(order.counts) for place in range(count))
    assert len(plan) == order.steps(size)
    assert all(1 <= len(batch.places) == batch.whole <= size for batch in plan)


@given(windows, lengths, st.integers(1, 3), st.integers(1, 20))
def test_in_order_has_every_sample_exactly_once(windows: Windows, lengths: list[int], grids: int, size: int) -> None:
    order = order_of(windows, lengths, grids)
    seen = Counter((batch.bucket, place) for batch in order.in_order(size) for place in batch.places.tolist())
    assert seen == Counter((bucket, place) for bucket, count in enumerate(order.counts) for place in range(count))


@given(st.integers(1, 9), st.integers(0, 40), st.integers(0, 2**40), st.integers(0, 1000))
def test_the_order_is_a_function_of_seed_and_epoch(lanes: int, window: int, seed: int, epoch: int) -> None:
    def places(seed: int, epoch: int) -> list[list[int]]:
        order = order_of(Windows(lanes, window), [20] * 10)
        return [batch.places.tolist() for batch in order.epoch(8, seed, epoch)]

    state = torch.get_rng_state()
    assert places(seed, epoch) == places(seed, epoch)
    assert places(seed, epoch) != places(seed, epoch + 1)
    assert places(seed, epoch) != places(seed + 1, epoch)
    assert torch.equal(torch.get_rng_state(), state)  # nobody else's randomness is touched


def test_batches_are_full_but_for_the_last_two_which_share_the_rest() -> None:
    lengths = [len(batch.places) for batch in order_of(Windows(4, 10), [25] * 4).epoch(16, 0, 0)]
    assert lengths == [16, 16, 16, 16, 16, 10, 10]


CHUNKS, LENGTH = 400, 50


@pytest.mark.parametrize("processes", [1, 2, 4, 8])
def test_processes_share_chunks_without_reading_more_in_all(processes: int) -> None:
    order = order_of(Windows(8, 100), [LENGTH] * CHUNKS)
    plan = order.epoch(64, 0, 0)
    read = [
        len({place // LENGTH for batch in plan for place in batch.places[rank::processes].tolist()})
        for rank in range(processes)
    ]
    # Where lanes meet, and in the last batches, some chunks are shared.
    assert CHUNKS <= sum(read) <= CHUNKS + 8 * processes
    assert max(read) - min(read) <= 8


def test_few_samples_wait_for_their_turn() -> None:
    windows = Windows.within([LENGTH] * CHUNKS, [LENGTH * 1000] * CHUNKS, memory=2_000_000)
    waiting, most, read = 0, 0, set[int]()
    for batch in order_of(windows, [LENGTH] * CHUNKS).epoch(64, 0, 0):
        new = {place // LENGTH for place in batch.places.tolist()} - read
        read |= new
        waiting += LENGTH * len(new)
        most = max(most, waiting)
        waiting -= len(batch.places)
    assert waiting == 0
    assert 0.5 * 2000 < most < 1.25 * 2000


def spread(windows: Windows, classes: int = 100) -> float:
    """How much more the counts of classes vary from batch to batch than by chance, in a set that is sorted by class."""
    labels = torch.arange(CHUNKS * LENGTH) * classes // (CHUNKS * LENGTH)
    plan = order_of(windows, [LENGTH] * CHUNKS).epoch(100, 0, 0)
    counts = torch.stack([torch.bincount(labels[batch.places], minlength=classes) for batch in plan]).double()
    return float(counts.var(dim=0).mean() / (1 - 1 / classes))  # a mean of 1 of each class in a batch


def test_lanes_mix_a_set_that_is_sorted_by_class() -> None:
    whole, lanes, one_lane = (spread(Windows(*each)) for each in ((1, 0), (8, 100), (1, 1)))
    assert 0.95 < whole < 1.05
    assert lanes < 7  # about 1 and a batch over the 24 chunks that are at hand
    assert one_lane > 40


@pytest.mark.parametrize(
    ("lengths", "weight", "processes", "lanes"),
    [(100, 10, 1, 8), (100, 10, 16, 16), (100, 10, 3, 8), (5000, 10, 1, 1), (1000, 10, 1, 2)],
)
def test_large_chunks_have_fewer_lanes(lengths: int, weight: int, processes: int, lanes: int) -> None:
    chunks = 10**7 // lengths
    found = Windows.within([lengths] * chunks, [lengths * weight] * chunks, memory=40_000, processes=processes)
    assert found.lanes == lanes
    assert found.window >= 1
