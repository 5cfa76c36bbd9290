"""Parquet files in the Hugging Face convention: which columns, which rows, and what is wrong with them."""

import os
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arrn.data import BadSample, ParquetFiles, examine, open_dataset
from arrn.errors import ArrnError
from pictures import IMAGE_TYPE, encoded, picture, write_parquet

PIXELS = [picture(4 + number, 6, number) for number in range(8)]
IMAGES = [encoded(pixels) for pixels in PIXELS]
LABELS = [0, 1, 0, 1, 1, 0, 0, 1]


def test_rows_come_in_order_across_row_groups_and_files(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train-00000-of-00002.parquet", IMAGES[:5], LABELS[:5], row_group_size=2)
    write_parquet(tmp_path / "train-00001-of-00002.parquet", IMAGES[5:], LABELS[5:], row_group_size=2)
    dataset = open_dataset(str(tmp_path))
    train = dataset.train
    assert dataset.test is None
    assert (dataset.name, dataset.mean, dataset.std) == (tmp_path.name, None, None)
    assert (len(train), train.split, train.class_names) == (8, "train", ("cat", "dog"))
    assert train.labels.tolist() == LABELS
    assert train.labels.dtype == torch.int64
    for index in (7, 0, 3, 4, 5, 2, 6, 1):
        assert torch.equal(train.read(index), torch.from_numpy(PIXELS[index]).permute(2, 0, 1))
        assert train.size(index) == (4 + index, 6)
    assert train.where(4) == f"{tmp_path / 'train-00000-of-00002.parquet'} row 4"
    assert train.where(6) == f"{tmp_path / 'train-00001-of-00002.parquet'} row 1"
    with pytest.raises(IndexError):
        train.read(8)


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("train-00000-of-00001.parquet", "test-00000-of-00001.parquet"),
        ("data/train-00000-of-00001-a1b2.parquet", "data/validation-00000-of-00001-a1b2.parquet"),
        ("train/0000.parquet", "test/0000.parquet"),
        ("train.parquet", "valid.parquet"),
    ],
)
def test_files_are_found_where_people_put_them(tmp_path: Path, train: str, test: str) -> None:
    write_parquet(tmp_path / train, IMAGES, LABELS)
    write_parquet(tmp_path / test, IMAGES[:2], LABELS[:2])
    dataset = open_dataset("mine", tmp_path)
    assert dataset.test is not None
    assert (dataset.name, len(dataset.train), len(dataset.test), dataset.test.split) == ("mine", 8, 2, "test")


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train-00001-of-00003.parquet", IMAGES, LABELS)
    write_parquet(tmp_path / "train-00002-of-00003.parquet", IMAGES, LABELS)
    with pytest.raises(ArrnError, match=r"train-00000-of-00003\.parquet is missing"):
        open_dataset(str(tmp_path))


def test_the_columns_are_found_by_type_and_by_metadata(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "a.parquet", IMAGES, LABELS, image_column="photo", label_column="fine_label")
    source = ParquetFiles([file], "train")
    assert source.class_names == ("cat", "dog")
    assert source.size(3) == (7, 6)


def test_of_several_label_columns_the_finest_is_taken(tmp_path: Path) -> None:
    features = {
        "coarse": {"_type": "ClassLabel", "names": ["all"]},
        "fine": {"_type": "ClassLabel", "names": ["a", "b"]},
    }
    columns = [pa.array([{"bytes": IMAGES[0], "path": "x"}], IMAGE_TYPE), pa.array([0]), pa.array([1])]
    table = pa.table(columns, names=["image", "coarse", "fine"])
    info = str({"info": {"features": features}}).replace("'", '"')
    pq.write_table(table.replace_schema_metadata({"huggingface": info}), tmp_path / "a.parquet")
    source = ParquetFiles([tmp_path / "a.parquet"], "train")
    assert (source.class_names, source.labels.tolist()) == (("a", "b"), [1])


def test_classes_without_names_are_numbered(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train.parquet", IMAGES, LABELS, names=None)
    write_parquet(tmp_path / "test.parquet", IMAGES[:3], [0, 0, 2], names=None)
    dataset = open_dataset(str(tmp_path))
    assert dataset.class_names == ("0", "1")
    assert dataset.test is not None
    with pytest.raises(BadSample, match=r"test\.parquet row 2: has label 2, but the 2 classes are numbered 0 to 1"):
        examine(dataset.test)
    write_parquet(tmp_path / "train.parquet", IMAGES[:2], [0, 10**12], names=None)
    with pytest.raises(ArrnError, match=r"train\.parquet: label 1000000000000 of sample 1 is out of range"):
        open_dataset(str(tmp_path))


def test_an_unsigned_label_is_told_by_its_value(tmp_path: Path) -> None:
    images = pa.array([{"bytes": image, "path": ""} for image in IMAGES[:3]], IMAGE_TYPE)
    for labels, told in (([0, None, 1], "row 1: has no label"), ([0, None, 2**63 + 5], "label 9223372036854775813 of")):
        table = pa.table({"image": images, "label": pa.array(labels, pa.uint64())})
        pq.write_table(table, tmp_path / "a.parquet")
        with pytest.raises(ArrnError, match=rf"a\.parquet:? {told}"):
            examine(ParquetFiles([tmp_path / "a.parquet"], "train", class_names=["cat", "dog"]))


@pytest.mark.parametrize(("label", "what"), [(None, "has no label"), (2, "has label 2"), (-3, "has label -3")])
def test_a_label_that_means_nothing_is_named(tmp_path: Path, label: int | None, what: str) -> None:
    source = ParquetFiles([write_parquet(tmp_path / "a.parquet", IMAGES[:5], [0, 1, 0, 1, label])], "train")
    for look in (source.read, source.size):
        with pytest.raises(BadSample, match=rf"a\.parquet row 4: {what}"):
            look(4)
    assert examine(source, skip_bad=True).source.labels.tolist() == [0, 1, 0, 1]


def test_a_row_without_bytes_is_named(tmp_path: Path) -> None:
    source = ParquetFiles([write_parquet(tmp_path / "a.parquet", [IMAGES[0], None, b""], [0, 1, 1])], "train")
    with pytest.raises(BadSample, match=r"a\.parquet row 1: column 'img' holds no bytes"):
        source.read(1)
    with pytest.raises(BadSample, match=r"a\.parquet row 2: it is empty"):
        source.read(2)


def test_a_row_without_an_image_is_named(tmp_path: Path) -> None:
    table = pa.table({"image": pa.array([None], IMAGE_TYPE), "label": pa.array([0])})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(BadSample, match="row 0: column 'image' holds no bytes"):
        ParquetFiles([tmp_path / "a.parquet"], "train").read(0)


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"label": pa.array([0])}, r"no column of images or sound.*'label' \(int64\)"),
        ({"img": pa.array([b"x"]), "label": pa.array([0])}, "no column of images or sound"),
        ({"img": pa.array([{"bytes": b"", "path": ""}], IMAGE_TYPE)}, "no label column"),
        ({"img": pa.array([{"bytes": b"", "path": ""}], IMAGE_TYPE), "label": pa.array(["cat"])}, "no label column"),
        ({"img": pa.array([], IMAGE_TYPE), "label": pa.array([], pa.int64())}, "holds no rows"),
    ],
)
def test_a_file_that_lacks_something_is_named(tmp_path: Path, columns: dict[str, pa.Array], complaint: str) -> None:
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(ArrnError, match=rf"a\.parquet.*{complaint}"):
        ParquetFiles([tmp_path / "a.parquet"], "train")


@pytest.mark.parametrize("keep", [0, 3, 200, -1])
def test_a_truncated_file_is_named(tmp_path: Path, keep: int) -> None:
    file = write_parquet(tmp_path / "a.parquet", IMAGES, LABELS)
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ArrnError, match=r"a\.parquet is truncated or not a parquet file") as caught:
        ParquetFiles([file], "train")
    assert "\n" not in str(caught.value)


def with_metadata(file: Path, metadata: str | bytes) -> Path:
    pq.write_table(pq.read_table(file).replace_schema_metadata({"huggingface": metadata}), file)
    return file


@pytest.mark.parametrize(
    "metadata",
    ['{"info":{"features":{"label":{"_type":"ClassLabel","names":5},"img":7}}}', '{"info":[]}', "[]", '{"info":{}}'],
)
def test_metadata_of_another_form_are_passed_over(tmp_path: Path, metadata: str) -> None:
    file = with_metadata(write_parquet(tmp_path / "a.parquet", IMAGES, LABELS, names=None), metadata)
    source = ParquetFiles([file], "train")
    assert (source.class_names, source.size(3)) == (("0", "1"), (7, 6))


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ('{"info":{"features":' + "[" * 100_000 + "]" * 100_000 + "}}", "it is nested more than 64 levels deep"),
        ('{"info":' * 100_000 + "1" + "}" * 100_000, "it is nested more than 64 levels deep"),
        ('{"info":{"features":{"label":' + "[" * 65 + "]" * 65 + "}}}", "it is nested more than 64 levels deep"),
        (b"\xff\xfe", "'utf-8' codec can't decode byte 0xff in position 0"),
        ('{"info":{"features":', "Expecting value: line 1 column 21"),
        ('{"info":' + "9" * 5000 + "}", "Exceeds the limit .* digits"),
        ('{"info":' + "9" * 30 + "}", "a whole number of 100 bits, and at most 63 are read"),
        (" " * (2**24 + 1), "16,777,217 bytes, and should be 16,777,216 at most"),
    ],
)
def test_metadata_that_cannot_be_read_are_refused(tmp_path: Path, metadata: str | bytes, why: str) -> None:
    with_metadata(write_parquet(tmp_path / "train.parquet", IMAGES, LABELS), metadata)
    said = rf"train\.parquet: its metadata under 'huggingface', which name the classes, are not valid JSON: {why}"
    with pytest.raises(ArrnError, match=said) as caught:
        open_dataset(str(tmp_path))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_more_classes_than_any_set_has_are_refused(tmp_path: Path) -> None:
    names = [str(number) for number in range(2**16 + 1)]
    file = write_parquet(tmp_path / "a.parquet", IMAGES, LABELS, names=names)
    (tmp_path / "b.parquet").write_bytes(b"not read any more")
    with pytest.raises(ArrnError, match=r"a\.parquet: a set has at most 65,536 classes, got 65,537"):
        ParquetFiles([file, tmp_path / "b.parquet"], "train")


def repeated(count: int, data: bytes) -> pa.Table:
    """One file in every row, which parquet holds once."""
    once = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([data], pa.binary()))
    images = pa.StructArray.from_arrays([once], names=["bytes"])
    return pa.table({"img": images, "label": pa.array(np.zeros(count, np.int64))})


def test_a_file_that_is_repeated_a_million_times_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(repeated(5000, bytes(10_000)), tmp_path / "a.parquet", store_schema=False)
    source = ParquetFiles([tmp_path / "a.parquet"], "train")
    assert len(source.read_chunk(0)) == 5000
    monkeypatch.setattr("arrn.data.bounds._UNPACKED_FREELY", 2**24)
    with pytest.raises(ArrnError, match=r"a\.parquet: row group 0 unpacks from .* to .* bytes: more than"):
        source.read(0)


def test_more_rows_than_any_set_has_are_refused_unread(tmp_path: Path) -> None:
    pq.write_table(repeated(2**25 + 1, b"x"), tmp_path / "a.parquet", store_schema=False)
    with pytest.raises(ArrnError, match=r"a\.parquet: a split has at most 33,554,432 samples, got 33,554,433"):
        ParquetFiles([tmp_path / "a.parquet"], "train")


def test_pages_that_are_corrupt_are_named(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "a.parquet", IMAGES, LABELS)
    damaged = bytearray(file.read_bytes())
    for group in range(pq.read_metadata(file).num_row_groups):
        column = pq.read_metadata(file).row_group(group).column(0)
        start = column.dictionary_page_offset or column.data_page_offset
        damaged[start : start + column.total_compressed_size] = b"\xa5" * column.total_compressed_size
    file.write_bytes(damaged)
    source = ParquetFiles([file], "train")
    with pytest.raises(ArrnError, match=r"a\.parquet is corrupt in row group 0: .") as caught:
        source.read(0)
    assert "\n" not in str(caught.value)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.parquet")
    with pytest.raises(ArrnError, match=r"train\.parquet is .*: it is a FIFO"):
        open_dataset(str(tmp_path))


@given(st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_damaged_file_gives_samples_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    file = write_parquet(tmp_path_factory.mktemp("damaged") / "a.parquet", IMAGES[:4], LABELS[:4])
    damaged = bytearray(file.read_bytes())
    for place, value in changes:
        damaged[-1 - place % len(damaged)] = value  # the end of the file says where everything is
    file.write_bytes(damaged)
    message = ""
    try:
        examine(ParquetFiles([file], "train"), skip_bad=True, decode=True)
    except ArrnError as error:
        message = str(error)
    assert "\n" not in message


def test_files_that_vanish_or_disagree_are_named(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "a.parquet", IMAGES, LABELS)
    source = ParquetFiles([file], "train")
    other = write_parquet(tmp_path / "b.parquet", IMAGES, LABELS, names=("dog", "cat"))
    with pytest.raises(ArrnError, match=r"b\.parquet has other class names than the files before it"):
        ParquetFiles([file, other], "train")
    with pytest.raises(ArrnError, match=r"b\.parquet has other class names than the files before it"):
        ParquetFiles([other], "test", class_names=("cat", "dog"))
    file.unlink()
    with pytest.raises(ArrnError, match=r"a\.parquet is missing"):
        source.read(0)
    with pytest.raises(ArrnError, match=r"a\.parquet is missing"):
        ParquetFiles([file], "train")


def test_a_test_split_without_labels_gives_way_to_validation(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train.parquet", IMAGES, LABELS)
    write_parquet(tmp_path / "test.parquet", IMAGES, [-1] * 8)
    write_parquet(tmp_path / "validation.parquet", IMAGES[:3], LABELS[:3])
    dataset = open_dataset(str(tmp_path))
    assert dataset.test is not None
    assert (len(dataset.test), dataset.test.split, dataset.validation) == (3, "test", None)


def test_a_validation_split_beside_a_test_split_is_kept_apart(tmp_path: Path) -> None:
    for count, split in enumerate(("train", "validation", "test"), 2):
        write_parquet(tmp_path / f"{split}.parquet", IMAGES[:count], LABELS[:count])
    dataset = open_dataset(str(tmp_path))
    assert dataset.test is not None
    assert dataset.validation is not None
    assert (len(dataset.train), len(dataset.validation), len(dataset.test)) == (2, 3, 4)
    write_parquet(tmp_path / "validation.parquet", IMAGES, [-1] * 8)
    assert open_dataset(str(tmp_path)).validation is None


def test_a_pickle_holds_no_images(tmp_path: Path) -> None:
    noise = [encoded(picture(60, 60, number)) for number in range(4)]
    source = ParquetFiles([write_parquet(tmp_path / "a.parquet", noise, [0, 1, 0, 1])], "train")
    image = source.read(2)
    pickled = pickle.dumps(source)
    assert len(pickled) < 2000 < sum(map(len, noise))
    assert torch.equal(pickle.loads(pickled).read(2), image)


def test_no_more_is_kept_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ParquetFiles([write_parquet(tmp_path / "a.parquet", IMAGES, LABELS, row_group_size=2)], "train")
    limit = 2 * len(IMAGES[0]) + 2 * len(IMAGES[2]) + 400
    monkeypatch.setattr("arrn.data.chunks._KEPT_BYTES", limit)
    for index in (0, 7, 3, 1, 5, 6, 2, 4):
        assert torch.equal(source.read(index), torch.from_numpy(PIXELS[index]).permute(2, 0, 1))
        sizes = [sum(len(content or b"") for content in chunk) for chunk in source._kept.values()]
        assert len(sizes) == 1 or sum(sizes) <= limit
    assert len(source._kept) > 1
