"""The validation split: exact in number, in proportion, the same for the same seed."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arrn.data import BadSample, Selection, Source, hold_out, open_dataset
from arrn.errors import ArrnError


class Labels(Source):
    """A source of labels alone."""

    def __init__(self, labels: list[int], classes: int) -> None:
        super().__init__("labels", "train", map(str, range(classes)), torch.tensor(labels, dtype=torch.int64))

    def where(self, index: int) -> str:
        return f"sample {index}"

    def size(self, index: int) -> tuple[int, ...]:
        return (index, index)

    def read(self, index: int) -> torch.Tensor:
        raise NotImplementedError


def members(source: Source) -> list[int]:
    assert isinstance(source, Selection)
    return source.indices.tolist()


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(0, 2**31), st.data())
def test_it_is_exact_proportional_and_leaves_every_class_one(sizes: list[int], seed: int, data: st.DataObject) -> None:
    labels = [label for label, size in enumerate(sizes) for _ in range(size)]
    labels = data.draw(st.permutations(labels))
    most = len(labels) - sum(size > 0 for size in sizes)
    if most < 1:
        return
    count = data.draw(st.integers(1, most))
    rest, held_out = hold_out(Labels(labels, len(sizes)), count, seed)
    assert len(held_out) == count
    assert sorted(members(rest) + members(held_out)) == list(range(len(labels)))
    assert members(rest) == sorted(members(rest))
    shares = torch.bincount(held_out.labels, minlength=len(sizes)).tolist()
    assert all(share < size for share, size in zip(shares, sizes, strict=True) if size)
    if all(count * size / len(labels) <= size - 1 for size in sizes if size):
        assert all(abs(share - count * size / len(labels)) < 1 for share, size in zip(shares, sizes, strict=True))


def test_the_seed_decides() -> None:
    source = open_dataset("sample").train
    first, again, other = (members(hold_out(source, 500, seed)[1]) for seed in (0, 0, 1))
    assert first == again != other


@pytest.mark.parametrize("count", [-1, 0, 9, 10, 11])
def test_a_count_that_cannot_be_is_refused(count: int) -> None:
    with pytest.raises(ArrnError, match=rf"{count} samples cannot be held out of the 10 of labels: it must be 1 to 8"):
        hold_out(Labels([0, 1] * 5, 2), count, 0)


def test_labels_that_mean_nothing_are_named() -> None:
    with pytest.raises(BadSample, match="sample 2: has no label"):
        hold_out(Labels([0, 1, -1], 2), 1, 0)
