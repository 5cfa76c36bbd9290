"""The order of an epoch, as laws."""

from collections import Counter

import torch
from hypothesis import given
from hypothesis import strategies as st

from arrn.data.epochs import derive_seed, plan_epoch, plan_in_order, steps_per_epoch

counts = st.lists(st.integers(0, 200), min_size=1, max_size=4)
batch_sizes = st.integers(1, 40)


@given(counts, batch_sizes, st.integers(0, 2**40), st.integers(0, 1000))
def test_an_epoch_takes_every_sample_at_most_once(counts: list[int], size: int, seed: int, epoch: int) -> None:
    plan = plan_epoch(counts, size, seed, epoch)
    seen = Counter((batch.bucket, place) for batch in plan for place in batch.places.tolist())
    assert all(times == 1 for times in seen.values())
    assert all(place < counts[bucket] for bucket, place in seen)


@given(counts, batch_sizes, st.integers(0, 100))
def test_a_bucket_leaves_out_less_than_a_batch_and_only_when_it_has_many(
    counts: list[int], size: int, seed: int
) -> None:
    taken: Counter[int] = Counter()
    for batch in plan_epoch(counts, size, seed, 0):
        assert 1 <= len(batch.places) <= size
        taken[batch.bucket] += len(batch.places)
    for bucket, count in enumerate(counts):
        if count >= 8 * size:
            assert taken[bucket] == count - count % size
        else:
            assert taken[bucket] == count


@given(counts, batch_sizes, st.integers(0, 100))
def test_small_buckets_are_split_evenly_and_large_ones_into_full_batches(
    counts: list[int], size: int, seed: int
) -> None:
    for bucket, count in enumerate(counts):
        lengths = [len(batch.places) for batch in plan_epoch(counts, size, seed, 0) if batch.bucket == bucket]
        if count >= 8 * size:
            assert set(lengths) == {size}
        elif count:
            assert max(lengths) - min(lengths) <= 1


@given(counts, batch_sizes, st.integers(0, 100), st.integers(0, 5))
def test_the_number_of_steps_is_known_beforehand(counts: list[int], size: int, seed: int, epoch: int) -> None:
    assert len(plan_epoch(counts, size, seed, epoch)) == steps_per_epoch(counts, size)


def orders(seed: int, epoch: int) -> list[tuple[int, list[int]]]:
    return [(batch.bucket, batch.places.tolist()) for batch in plan_epoch([50, 30], 8, seed, epoch)]


@given(st.integers(0, 2**40), st.integers(0, 1000))
def test_the_order_is_a_function_of_seed_and_epoch(seed: int, epoch: int) -> None:
    state = torch.get_rng_state()
    assert orders(seed, epoch) == orders(seed, epoch)
    assert orders(seed, epoch) != orders(seed, epoch + 1)
    assert orders(seed, epoch) != orders(seed + 1, epoch)
    assert torch.equal(torch.get_rng_state(), state)  # nobody else's randomness is touched


def test_every_sample_is_left_out_as_often_as_others() -> None:
    taken = Counter(p for epoch in range(300) for b in plan_epoch([35], 4, 0, epoch) for p in b.places.tolist())
    assert min(taken.values()) > 0.8 * 300 * 32 / 35  # 32 of 35 each time


@given(counts, batch_sizes)
def test_in_order_means_every_sample_once_in_order(counts: list[int], size: int) -> None:
    plan = plan_in_order(counts, size)
    assert [(b.bucket, p) for b in plan for p in b.places.tolist()] == [
        (bucket, place) for bucket, count in enumerate(counts) for place in range(count)
    ]
    assert all(1 <= len(batch.places) <= size for batch in plan)


@given(st.integers(0, 2**70), st.lists(st.integers(0, 10), max_size=3))
def test_derived_seeds_fit_every_generator(seed: int, path: list[int]) -> None:
    derived = derive_seed(seed, *path)
    assert 0 <= derived < 2**63
    torch.Generator().manual_seed(derived)
    assert derived != derive_seed(seed + 1, *path)
