"""Folders of images: what becomes a class, what is passed over, what is refused."""

import os
import pickle
from pathlib import Path

import pytest
import torch

from arrn.data import BadSample, ImageFolder, examine, open_dataset
from arrn.errors import ArrnError
from pictures import encoded, picture, write_folder
from sounds import write_tones


def test_splits_and_classes_are_found(tmp_path: Path) -> None:
    write_folder(tmp_path / "train", {"zebra": [(8, 8)], "ape": [(9, 5), (64, 64)]})
    write_folder(tmp_path / "val", {"zebra": [(3, 4)]}, suffix="jpg")
    dataset = open_dataset(str(tmp_path))
    assert dataset.class_names == ("ape", "zebra")
    assert dataset.train.labels.tolist() == [0, 0, 1]
    assert [dataset.train.size(index) for index in range(3)] == [(9, 5), (64, 64), (8, 8)]
    assert torch.equal(dataset.train.read(0), torch.from_numpy(picture(9, 5)).permute(2, 0, 1))
    assert dataset.train.where(2) == str(tmp_path / "train" / "zebra" / "0.png")
    assert dataset.test is not None
    assert (dataset.test.split, dataset.test.labels.tolist(), dataset.test.class_names) == (
        "test",
        [1],
        ("ape", "zebra"),
    )


def test_without_splits_all_is_for_training(tmp_path: Path) -> None:
    write_folder(tmp_path, {"b": [(4, 4)], "a": [(4, 4)]})
    dataset = open_dataset("mine", tmp_path)
    assert (dataset.test, dataset.train.name, dataset.class_names) == (None, "mine", ("a", "b"))
    with pytest.raises(ArrnError, match="has no test split"):
        ImageFolder(tmp_path, "test")


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    write_folder(tmp_path, {"car": [(4, 4)], "train": [(4, 4)], "bus": [(4, 4)]})
    assert open_dataset(str(tmp_path)).class_names == ("bus", "car", "train")


def test_splits_without_classes_are_not_taken_for_classes(tmp_path: Path) -> None:
    write_folder(tmp_path, {"train": [(4, 4)], "test": [(4, 4)]})
    with pytest.raises(ArrnError, match=r"train should hold a folder for each class"):
        open_dataset(str(tmp_path))


@pytest.mark.parametrize(
    ("train", "test"), [("Train", "Test"), ("TRAIN", "VAL"), ("training", "testing"), ("Training", "Validation")]
)
def test_splits_go_by_several_names_in_capitals_or_not(tmp_path: Path, train: str, test: str) -> None:
    write_folder(tmp_path / train, {"cat": [(4, 4)] * 2, "dog": [(4, 4)]})
    write_folder(tmp_path / test, {"cat": [(4, 4)], "dog": [(4, 4)]})
    dataset = open_dataset(str(tmp_path))
    assert dataset.test is not None
    assert (dataset.class_names, len(dataset.train), len(dataset.test)) == (("cat", "dog"), 3, 2)
    assert (dataset.test.split, dataset.validation) == ("test", None)


def test_a_validation_split_beside_a_test_split_is_kept_apart(tmp_path: Path) -> None:
    for count, split in enumerate(("train", "val", "Test"), 1):
        write_folder(tmp_path / split, {"cat": [(4, 4)] * count, "dog": [(4, 4)]})
    dataset = open_dataset(str(tmp_path))
    assert dataset.test is not None
    assert dataset.validation is not None
    assert (len(dataset.train), len(dataset.validation), len(dataset.test)) == (2, 3, 4)
    assert dataset.validation.class_names == dataset.class_names


def test_images_are_found_at_any_depth_under_any_name(tmp_path: Path) -> None:
    write_folder(tmp_path, {"猫/deep/er": [(4, 4)], "猫": [(4, 4)], "été 2024": [(4, 4)], "a.b [x]*": [(4, 4)]})
    (tmp_path / "猫" / "Ünï.JPEG").write_bytes(encoded(picture(5, 5), "JPEG"))
    source = ImageFolder(tmp_path, "train")
    assert source.class_names == ("a.b [x]*", "été 2024", "猫")
    assert source.labels.tolist() == [0, 1, 2, 2, 2]
    assert {source.size(index) for index in range(5)} == {(4, 4), (5, 5)}


def test_a_file_name_that_is_no_text_can_be_named(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a": [(4, 4)]})
    try:
        Path(os.fsdecode(os.fsencode(tmp_path / "a") + b"/\xff.png")).write_bytes(b"")
    except OSError:
        pytest.skip("this disk takes text alone")
    source = ImageFolder(tmp_path, "train")
    with pytest.raises(BadSample, match=r"udcff\.png: it is empty") as caught:
        source.read(1)
    str(caught.value).encode()


def test_what_systems_leave_behind_is_passed_over(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a": [(4, 4)], ".git": [(4, 4)], "__MACOSX": [(4, 4)]})
    for stray in (".DS_Store", "Thumbs.db", "README", "a/labels.txt", "a/._0.png", "a/.hidden.png", ".x.png"):
        (tmp_path / stray).write_bytes(b"no image")
    source = ImageFolder(tmp_path, "train")
    assert (len(source), source.class_names) == (1, ("a",))


@pytest.mark.parametrize(
    ("extra", "complaint"),
    [
        ("train/a.png", r"train.a\.png lies beside the class folders"),
        ("train/c/", r"train.c holds no images"),
        ("train/c/notes.txt", r"train.c holds no images"),
        ("test/a/", r"test.a holds no images"),
        ("test/c/0.png", r"test.c is a class that .*train does not have"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, extra: str, complaint: str) -> None:
    write_folder(tmp_path / "train", {"a": [(4, 4)], "b": [(4, 4)]})
    write_folder(tmp_path / "test", {"b": [(4, 4)]})
    (tmp_path / extra).parent.mkdir(parents=True, exist_ok=True)
    if extra.endswith("/"):
        (tmp_path / extra).mkdir()
    else:
        (tmp_path / extra).write_bytes(encoded(picture(4, 4)))
    with pytest.raises(ArrnError, match=complaint):
        open_dataset(str(tmp_path))


def test_images_beside_sound_are_refused(tmp_path: Path) -> None:
    write_tones(tmp_path)
    image = next(tmp_path.glob("train/*")) / "spectrogram.png"
    image.write_bytes(encoded(picture(4, 4)))
    with pytest.raises(ArrnError, match=r"holds images and sound, such as .*spectrogram\.png and .*\.wav"):
        open_dataset(str(tmp_path))


@pytest.mark.parametrize("place", ["loop", "train/loop", "train/a/loop"])
def test_a_folder_that_links_to_its_own_root_is_no_class(tmp_path: Path, place: str) -> None:
    write_folder(tmp_path / "train", {"a": [(4, 4)], "b": [(4, 4)]})
    (tmp_path / place).symlink_to(tmp_path, target_is_directory=True)
    if place == "train/loop":
        with pytest.raises(
            ArrnError, match=rf"train.loop is a link to {tmp_path}, the folder around it, and cannot be a class"
        ):
            open_dataset(str(tmp_path))
    elif place == "loop":
        with pytest.raises(ArrnError, match=r"loop is a link to .*, the folder around it"):
            open_dataset(str(tmp_path))
    else:
        assert len(open_dataset(str(tmp_path)).train) == 2


def test_links_to_folders_elsewhere_are_classes_and_round_ones_are_none(tmp_path: Path) -> None:
    write_folder(tmp_path / "elsewhere", {"a": [(4, 4)], "b": [(4, 4)]})
    root = tmp_path / "set"
    root.mkdir()
    for name in ("a", "b"):
        (root / name).symlink_to(tmp_path / "elsewhere" / name, target_is_directory=True)
    (root / "round").symlink_to(root / "round")
    assert open_dataset(str(root)).class_names == ("a", "b")


def test_a_pipe_among_images_is_a_bad_sample_and_not_waited_for(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a": [(4, 4)], "b": [(4, 4)]})
    os.mkfifo(tmp_path / "a" / "1.png")
    source = open_dataset(str(tmp_path)).train
    for look in (source.size, source.read):
        with pytest.raises(BadSample, match=r"1\.png: cannot be read: it is a FIFO"):
            look(1)
    assert len(examine(source, skip_bad=True).bad) == 1


def test_a_broken_link_is_a_bad_sample(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a": [(4, 4)]})
    (tmp_path / "a" / "1.png").symlink_to(tmp_path / "gone.png")
    source = ImageFolder(tmp_path, "train")
    with pytest.raises(BadSample, match=r"1\.png: no such file"):
        source.size(1)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_closed_folder_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a/closed": [(4, 4)]})
    (tmp_path / "a" / "closed").chmod(0)
    with pytest.raises(ArrnError, match=r"cannot read the folder .*closed: Permission denied"):
        ImageFolder(tmp_path, "train")


def test_a_missing_root_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArrnError, match=r"cannot read the folder .*none: No such file"):
        ImageFolder(tmp_path / "none", "train")


def test_it_pickles(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a": [(4, 4)], "b": [(6, 7)]})
    source = pickle.loads(pickle.dumps(ImageFolder(tmp_path, "train")))
    assert (source.size(1), source.labels.tolist()) == ((6, 7), [0, 1])
