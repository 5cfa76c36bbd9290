"""MedMNIST's npz files: images and volumes, grey and RGB, and files that are something else."""

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from arrn.data import Form, NpzArrays, examine, open_dataset
from arrn.errors import ArrnError
from sounds import write_npz


@pytest.mark.parametrize(
    ("size", "channels", "form"),
    [
        ((6, 5), 0, Form(2, 1, torch.uint8)),
        ((6, 5), 3, Form(2, 3, torch.uint8)),
        ((6, 5), 1, Form(2, 1, torch.uint8)),
        ((6, 5, 4), 0, Form(3, 1, torch.uint8)),
        ((6, 5, 4), 3, Form(3, 3, torch.uint8)),
    ],
)
def test_arrays_of_every_layout_are_read(tmp_path: Path, size: tuple[int, ...], channels: int, form: Form) -> None:
    file = write_npz(tmp_path / "set.npz", 12, size, channels)
    dataset = open_dataset(str(file))
    assert dataset.test is not None
    assert (dataset.name, dataset.class_names, dataset.train.form) == ("set", ("0", "1"), form)
    assert dataset.train.labels.tolist() == [int(n % 3 == 0) for n in range(12)]
    assert set(examine(dataset.test, decode=True).sizes) == {size}
    whole = np.load(file)["test_images"].reshape(12, *size, form.channels)
    for index in (0, 7):
        assert torch.equal(dataset.test.read(index), torch.from_numpy(whole[index]).movedim(-1, 0))
    assert dataset.test.where(7) == f"{file} test_images 7"


def test_a_published_validation_split_is_kept_apart(tmp_path: Path) -> None:
    dataset = open_dataset(str(write_npz(tmp_path / "set.npz")))
    assert dataset.validation is not None
    assert torch.equal(dataset.validation.read(2)[0], torch.from_numpy(np.load(tmp_path / "set.npz")["val_images"][2]))
    assert open_dataset(str(write_npz(tmp_path / "x.npz", val_images=None, val_labels=None))).validation is None
    with pytest.raises(ArrnError, match="has no 'val_labels'"):
        open_dataset(str(write_npz(tmp_path / "x.npz", val_labels=None)))


def test_a_pickle_holds_no_images(tmp_path: Path) -> None:
    source = NpzArrays(write_npz(tmp_path / "set.npz", 12, (16, 16)), "train")
    expected = source.read(3)
    pickled = pickle.dumps(source)
    assert len(pickled) < 1500
    assert torch.equal(pickle.loads(pickled).read(3), expected)
    source.read(3).zero_()
    assert torch.equal(source.read(3), expected)


def test_the_largest_of_several_sizes_is_read_and_said(tmp_path: Path) -> None:
    write_npz(tmp_path / "organ.npz", 12, (4, 4, 4))
    assert open_dataset("anything", tmp_path).name == "organ"
    write_npz(tmp_path / "organ_64.npz", 12, (8, 8, 8))
    dataset = open_dataset("organ", tmp_path)
    assert dataset.name == "organ_64"
    assert dataset.remark == "organ_64.npz is read, the largest size; there is also organ.npz"
    assert open_dataset("organ_64", tmp_path).remark is None
    assert open_dataset(str(tmp_path / "organ.npz")).train.size(0) == (4, 4, 4)
    with pytest.raises(ArrnError, match=r"several npz files \(organ, organ_64\): choose one of them by its name"):
        open_dataset("nodule", tmp_path)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no test images": ({"test_images": None}, r"has no 'test_images'; its keys are train_images, train_labels, val"),
    "no training labels": ({"train_labels": None}, "has no 'train_labels'"),
    "several labels": ({"train_labels": np.zeros((12, 14), np.uint8)}, "one class for each sample, got uint8 of shape"),
    "labels that are no numbers": ({"train_labels": np.zeros(12)}, "should be whole numbers"),
    "another number of labels": ({"train_labels": np.zeros(5, np.uint8)}, "12 train_images, but 5 train_labels"),
    "floating-point images": ({"train_images": np.zeros((12, 8, 8))}, "should be uint8 of shape .* got float64"),
    "lines": ({"train_images": np.zeros((12, 8), np.uint8)}, r"got uint8 of shape \(12, 8\)"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_not_of_the_layout_is_named(tmp_path: Path, what: str) -> None:
    other, complaint = WRONG[what]
    file = write_npz(tmp_path / "set.npz", 12, (8, 8), **other)
    with pytest.raises(ArrnError, match=complaint) as caught:
        open_dataset(str(file))
    assert str(file) in str(caught.value)


def test_pickles_and_broken_files_are_refused(tmp_path: Path) -> None:
    objects = np.array([{"a": 1}] * 12, dtype=object)
    file = tmp_path / "set.npz"
    np.savez(file, train_images=objects, train_labels=objects, test_images=objects, test_labels=objects)
    with pytest.raises(ArrnError, match=r"train_labels cannot be read: .*pickle"):
        open_dataset(str(file))
    whole = write_npz(file).read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"text"):
        file.write_bytes(content)
        with pytest.raises(ArrnError, match=r"set\.npz is truncated or not an npz file"):
            open_dataset(str(file))
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "one.npy").rename(file)
    with pytest.raises(ArrnError, match="holds a single array"):
        open_dataset(str(file))


def rewrite(file: Path, key: str, content: bytes, compression: int = zipfile.ZIP_DEFLATED) -> None:
    """Puts other bytes in the place of an array, in an archive that is as it should be."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in (members | {f"{key}.npy": content}).items():
            archive.writestr(name, data)


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def described(shape: object, dtype: str = "|u1", order: str = "False") -> str:
    return f"{{'descr': {dtype!r}, 'fortran_order': {order}, 'shape': {shape}}}"


NO_HEADER = "cannot be read: the header of the array, which gives its shape and dtype, is damaged$"
HEADERS = {
    "a shape beyond the bytes": (described((12, 30000, 30000)), "10,800,000,000 bytes, but the file holds 768"),
    "a shape of negative numbers": (described((12, -8, -8)), "is impossible"),
    "a shape beyond 64 bits": (described((12, 9**30)), "bytes, but the file holds"),
    "too few bytes": (described((12, 8)), "96 bytes, but the file holds 768"),
    "no literal": (described((12, 8, 8), order="f()"), NO_HEADER),
    "deep": ("(" * 110, NO_HEADER),
    "no dtype": (described((12, 8, 8), "|u1x"), NO_HEADER),
    "objects": (described((12, 8, 8), "|O"), r"Python objects \(a pickle\)"),
    "nothing": ("", NO_HEADER),
}


@pytest.mark.parametrize("what", HEADERS)
@pytest.mark.parametrize("key", ["train_images", "train_labels"])
def test_headers_that_lie_are_refused_in_a_line(tmp_path: Path, what: str, key: str) -> None:
    header, complaint = HEADERS[what]
    file = write_npz(tmp_path / "set.npz", 12, (8, 8))
    rewrite(file, key, npy(header, bytes(768)))
    with pytest.raises(ArrnError, match=rf"set\.npz: {key} .*{complaint}") as caught:
        open_dataset(str(file))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["train_images", "train_labels"])
def test_corrupt_deflate_data_is_named(tmp_path: Path, key: str) -> None:
    file = write_npz(tmp_path / "set.npz", 12, (16, 16))
    with zipfile.ZipFile(file) as archive:
        entry = archive.getinfo(f"{key}.npy")
    damaged = bytearray(file.read_bytes())
    start = entry.header_offset + 30 + len(entry.filename)
    for place in range(start, start + entry.compress_size):
        damaged[place] ^= 0x5A
    file.write_bytes(damaged)
    with pytest.raises(ArrnError, match=rf"set\.npz: {key} cannot be read: ") as caught:
        NpzArrays(file, "train").read(0)
    assert "\n" not in str(caught.value)


def test_a_zip_bomb_is_refused_by_what_it_claims(tmp_path: Path) -> None:
    file = write_npz(tmp_path / "set.npz", 12, (8, 8))
    shape = (12, 10000, 10000)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    rewrite(file, "train_images", header.getvalue())
    # The bytes are not there: that 1.2 GB are announced is enough, and more would be allocated before they are missed.
    content = bytearray(file.read_bytes())
    with zipfile.ZipFile(file) as archive:
        place = archive.start_dir
        for name in archive.namelist():
            if name == "train_images.npy":
                break
            place += 46 + len(name)
    content[place + 24 : place + 28] = (len(header.getvalue()) + 1_200_000_000).to_bytes(4, "little")
    file.write_bytes(content)
    with pytest.raises(ArrnError, match=r"train_images unpacks from \d+ to 1,200,000,\d+ bytes: more than"):
        open_dataset(str(file))


@pytest.mark.parametrize("label", [12, 10**9, 2**62])
def test_a_label_that_would_make_a_billion_classes_is_refused(tmp_path: Path, label: int) -> None:
    labels = np.array([0, 1, label, *[0] * 9])
    file = write_npz(tmp_path / "set.npz", train_labels=labels)
    with pytest.raises(ArrnError, match=rf"set\.npz: train_labels: label {label} of sample 2 is out of range"):
        open_dataset(str(file))


def test_an_unsigned_label_is_told_by_its_value(tmp_path: Path) -> None:
    for split in ("train", "test"):
        labels = np.array([0, 1, 2**63 + 5, *[0] * 9], np.uint64)
        file = write_npz(tmp_path / "set.npz", **{f"{split}_labels": labels})
        with pytest.raises(ArrnError, match=rf"{split}_labels: label 9223372036854775813 of sample 2 is out of range"):
            open_dataset(str(file))


def test_a_negative_label_beside_one_class_is_named(tmp_path: Path) -> None:
    others = dict.fromkeys(("test_images", "test_labels", "val_images", "val_labels"))
    file = write_npz(tmp_path / "set.npz", train_labels=np.array([0, -1, *[0] * 9, -1]), **others)
    with pytest.raises(
        ArrnError, match=r"only the class '0', and 2 of its 12 samples have a negative label such as -1"
    ):
        open_dataset(str(file))


def test_more_labels_than_any_set_has_are_refused_unread(tmp_path: Path) -> None:
    file = write_npz(tmp_path / "set.npz", 12, (8, 8))
    shape = (2**25 + 1,)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    rewrite(file, "train_labels", header.getvalue() + bytes(shape[0]))
    with pytest.raises(ArrnError, match=r"train_labels: a split has at most 33,554,432 samples, got 33,554,433"):
        open_dataset(str(file))


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "set.npz")
    with pytest.raises(ArrnError, match=r"set\.npz cannot be read: it is a FIFO"):
        open_dataset("set", tmp_path)


def test_splits_of_different_kinds_are_refused(tmp_path: Path) -> None:
    file = write_npz(tmp_path / "set.npz", 12, (8, 8), test_images=np.zeros((12, 8, 8, 8), np.uint8))
    with pytest.raises(
        ArrnError, match=r"training split .* holds images with 1 channel, but .* holds volumes with 1 channel"
    ):
        open_dataset(str(file))


def test_a_class_that_training_does_not_have_is_refused_before_it(tmp_path: Path) -> None:
    labels = np.array([0, 1, 2, *[0] * 9], np.uint8)
    for split in ("test", "val"):
        file = write_npz(tmp_path / "set.npz", **{f"{split}_labels": labels})
        with pytest.raises(
            ArrnError, match=f"the largest of {split}_labels is 2, but the largest of train_labels is 1"
        ):
            open_dataset(str(file))


def test_without_a_test_split_validation_stands_in_and_none_is_fine(tmp_path: Path) -> None:
    file = write_npz(tmp_path / "set.npz", test_images=None, test_labels=None)
    dataset = open_dataset(str(file))
    assert dataset.test is not None
    assert (dataset.test.split, dataset.test.where(3), dataset.validation) == ("test", f"{file} val_images 3", None)
    none = dict.fromkeys(("test_images", "test_labels", "val_images", "val_labels"))
    alone = open_dataset(str(write_npz(tmp_path / "alone.npz", **none)))
    assert (len(alone.train), alone.test, alone.validation) == (12, None, None)
