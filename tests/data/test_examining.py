"""Samples looked over before training, and the validation split held out of them."""

import time
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arrn.data import BadSample, ImageFolder, ParquetFiles, Selection, Source, examine, hold_out, open_dataset
from arrn.errors import ArrnError
from pictures import encoded, picture, write_folder, write_parquet


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten images a class; of `a`, one is empty and one is cut short."""
    write_folder(tmp_path, {"a": [(8 + k, 64 - k) for k in range(10)], "b": [(5, 5)] * 10})
    (tmp_path / "a" / "3.png").write_bytes(b"")
    whole = (tmp_path / "a" / "7.png").read_bytes()
    (tmp_path / "a" / "7.png").write_bytes(whole[: len(whole) // 2])
    return tmp_path


def test_the_first_bad_sample_is_named(folder: Path) -> None:
    with pytest.raises(BadSample, match=r"a.3\.png: it is empty"):
        examine(ImageFolder(folder, "train"))


@pytest.mark.parametrize(("decode", "lost"), [(False, [3]), (True, [3, 7])])
def test_bad_samples_are_left_out_and_listed(folder: Path, decode: bool, lost: list[int]) -> None:
    source = ImageFolder(folder, "train")
    found = examine(source, skip_bad=True, decode=decode)
    assert [error.where for error in found.bad] == [str(folder / "a" / f"{k}.png") for k in lost]
    kept = [index for index in range(20) if index not in lost]
    assert found.sizes == tuple((8 + k, 64 - k) if k < 10 else (5, 5) for k in kept)
    assert found.source.labels.tolist() == [k // 10 for k in kept]
    assert [found.source.where(place) for place in range(len(kept))] == [source.where(k) for k in kept]


def test_a_good_source_comes_back_as_it_is(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a": [(4, 4)], "b": [(5, 6)]})
    source = ImageFolder(tmp_path, "train")
    found = examine(source)
    assert found.source is source
    assert (found.sizes, found.bad) == (((4, 4), (5, 6)), ())


def test_a_class_that_nothing_is_left_of_is_named(folder: Path) -> None:
    for file in (folder / "b").iterdir():
        file.write_bytes(b"")
    with pytest.raises(ArrnError, match=r"no sample of class 'b' of .* can be used: 10 are bad; the first: .*b.0\.png"):
        examine(ImageFolder(folder, "train"), skip_bad=True)


def test_a_class_may_be_missing_from_the_test_split_alone(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "a.parquet", [encoded(picture(4, 4))] * 2, [1, 1])
    assert len(examine(ParquetFiles([file], "test")).sizes) == 2
    with pytest.raises(ArrnError, match=r"class 'cat' of .* has no samples in the training split"):
        examine(ParquetFiles([file], "train"))


class SlowSource(Source):
    """Samples of sizes (1, 0), (1, 1), ... that take a while to come, every hundredth bad."""

    def __init__(self, count: int) -> None:
        super().__init__("slow", "train", ["all"], torch.zeros(count, dtype=torch.int64))

    def where(self, index: int) -> str:
        return f"sample {index}"

    def size(self, index: int) -> tuple[int, ...]:
        time.sleep(0.0012)
        if index % 100 == 99:
            raise BadSample(self.where(index), "bad")
        return (1, index)

    def read(self, index: int) -> torch.Tensor:
        raise NotImplementedError


def test_threads_give_the_same_answer_in_the_same_order() -> None:
    seen: list[int] = []
    found = examine(SlowSource(300), skip_bad=True, progress=seen.append)
    assert [width for _, width in found.sizes] == [index for index in range(300) if index % 100 != 99]
    assert [error.where for error in found.bad] == ["sample 99", "sample 199", "sample 299"]
    assert seen == sorted(seen)
    assert seen[-1] == 300
    with pytest.raises(BadSample, match="sample 99: bad"):
        examine(SlowSource(300))


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
    with pytest.raises(
        ArrnError, match=rf"{count} samples cannot be held out of the 10 samples of labels: .* from 1 to 8"
    ):
        hold_out(Labels([0, 1] * 5, 2), count, 0)


def test_labels_that_mean_nothing_are_named() -> None:
    with pytest.raises(BadSample, match="sample 2: has no label"):
        hold_out(Labels([0, 1, -1], 2), 1, 0)
