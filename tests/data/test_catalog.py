"""Data sets by name and by folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from arrn.data import examine, frame, list_datasets, open_dataset
from arrn.errors import ArrnError
from arrn.runtime.aspect import Aspect
from pictures import encoded, picture, write_folder, write_parquet
from sounds import write_npz, write_tones


def test_every_name_is_listed() -> None:
    assert list_datasets() == ["cifar10", "cifar100", "imagenette", "sample", "stl10", "tinyimagenet"]


def test_an_unknown_name_says_what_would_do() -> None:
    with pytest.raises(ArrnError, match=r"did you mean 'cifar10'\?.*path of its folder, or --data ROOT"):
        open_dataset("cifar-10")


def test_a_folder_of_nearly_that_name_is_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "notes").write_text("no folder")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArrnError, match=r"unknown data set 'photo' .*; did you mean 'photos'\?"):
        open_dataset("photo")
    with pytest.raises(ArrnError, match=rf"is missing: .*; did you mean '{tmp_path}/photos'\?"):
        open_dataset(str(tmp_path / "fotos"))
    with pytest.raises(ArrnError, match=r"unknown data set 'note' .*path of its folder"):
        open_dataset("note")


def test_a_name_with_a_root_is_a_label(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train.parquet", [encoded(picture(4, 4))] * 2, [0, 1])
    assert open_dataset("anything", tmp_path).mean is None
    known = open_dataset("cifar10", tmp_path)
    assert (known.name, known.train.name, known.mean) == ("cifar10", "cifar10", (0.4914, 0.4822, 0.4465))


@pytest.mark.parametrize("name", ["sample", "cifar10", "cifar100", "stl10", "tinyimagenet", "imagenette"])
def test_a_path_that_ends_in_a_known_name_is_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def download(*_: object) -> None:
        raise AssertionError("nobody asked for a download")

    monkeypatch.setattr("arrn.data.catalog.download", download)
    with pytest.raises(ArrnError, match=f"{name} is missing"):
        open_dataset(str(tmp_path / name))
    (tmp_path / name).mkdir()
    with pytest.raises(ArrnError, match=f"{name} holds no data set of a known layout"):
        open_dataset(str(tmp_path / name))
    write_folder(tmp_path / name, {"cat": [(4, 4)], "dog": [(4, 4)]})
    dataset = open_dataset(str(tmp_path / name))
    assert (dataset.name, dataset.mean, dataset.std) == (name, None, None)


def test_published_statistics_are_not_for_other_channels(tmp_path: Path) -> None:
    assert open_dataset("cifar10", write_tones(tmp_path, per_class=1)).mean is None


def test_one_class_is_nothing_to_tell_apart(tmp_path: Path) -> None:
    write_folder(tmp_path / "folder", {"cat": [(4, 4)] * 3})
    write_parquet(tmp_path / "parquet" / "train.parquet", [encoded(picture(4, 4))] * 2, [0, 0], ["cat"])
    for root in ("folder", "parquet"):
        with pytest.raises(ArrnError, match=f"{root} has only the class 'cat': a network needs at least 2"):
            open_dataset(str(tmp_path / root))


def test_a_folder_is_named_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "pets", {"cat": [(4, 4)], "dog": [(4, 4)]})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("pets", "./pets", "pets/", str(tmp_path / "pets"), "~/pets"):
        dataset = open_dataset(path)
        assert (dataset.name, dataset.train.name, len(dataset.train)) == ("pets", "pets", 2)
    monkeypatch.chdir(tmp_path / "pets")
    assert open_dataset("./").name == "pets"


def test_an_unknown_layout_says_what_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("no image")
    for root in (tmp_path, tmp_path / "docs"):
        with pytest.raises(ArrnError, match=r"known layout.*train-\*\.parquet.*train/CLASS/.*cifar-10-batches-py"):
            open_dataset("mine", root)


def test_a_root_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArrnError, match="none is missing"):
        open_dataset(str(tmp_path / "none"))
    (tmp_path / "file").write_text("x")
    for name in ("mine", "cifar10"):
        with pytest.raises(ArrnError, match="file is not a folder"):
            open_dataset(name, tmp_path / "file")


BLOCKED = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None
import arrn.data
from arrn.errors import ArrnError
from arrn.runtime.aspect import Aspect
try:
    print(arrn.data.open_dataset({name!r}, {root!r}).train.read(0).shape)
except ArrnError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("name", "missing", "complaint"),
    [
        ("sample", "pyarrow", "reading parquet files needs pyarrow"),
        ("sample", "PIL", "reading images needs pillow"),
        ("cifar10", "torchvision", "reading cifar10 needs torchvision"),
    ],
)
def test_a_missing_package_is_one_line(
    name: str, missing: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    for loaded in [module for module in sys.modules if module.startswith(f"{missing}.")]:
        monkeypatch.setitem(sys.modules, loaded, None)
    with pytest.raises(ArrnError) as caught:
        open_dataset(name).train.read(0)
    assert str(caught.value) == f"{complaint}: pip install '.[train]' in a clone of the repository"


def test_folders_need_pillow_alone(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a": [(4, 5)], "b": [(4, 5)]})
    code = BLOCKED.format(blocked=["pyarrow", "torchvision"], name="mine", root=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "torch.Size([3, 4, 5])\n"


@pytest.mark.parametrize("layout", ["folder", "parquet", "npz", "split"])
def test_images_above_the_limit_are_refused_unless_the_caller_takes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    root = tmp_path / "set"
    if layout == "folder":
        write_folder(root, {"a": [(4, 5)], "b": [(4, 5)]})
    elif layout == "parquet":
        write_parquet(root / "train.parquet", [encoded(picture(4, 5))] * 2, [0, 1])
    elif layout == "npz":
        write_npz(root / "set.npz", size=(4, 5))
    else:
        write_folder(root / "train", {"a": [(2, 2)], "b": [(2, 2)]})
        write_folder(root / "test", {"a": [(4, 5)], "b": [(4, 5)]})
    monkeypatch.setattr("arrn.runtime.files.MOST_PIXELS", 19)

    def look(most: int | None) -> set[tuple[int, ...]]:
        dataset = open_dataset(str(root), max_pixels=most)
        source = dataset.test if layout == "split" else dataset.train
        assert source is not None
        assert source.read(0).shape[-2:] == (4, 5)
        return set(examine(source).sizes)

    assert look(20) == {(4, 5)}
    with pytest.raises(ArrnError, match=r"4x5, is 20 pixels, more than the limit of 19: raise --max-pixels"):
        look(None)


def test_what_padding_makes_of_an_image_is_held_to_the_callers_limit(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a": [(2, 8)], "b": [(2, 8)]})
    framed = {}
    for most in (63, 64):
        found = examine(open_dataset(str(tmp_path), max_pixels=most).train)
        try:
            framed[most] = frame(found, Aspect("pad", (8, 8))).source.read(1).shape[-2:]
        except ArrnError as error:
            framed[most] = str(error).partition(": ")[2]
    assert framed[64] == (8, 8)
    assert "padded to the network's proportions, its size, 8x8, is 64 pixels, more than the limit of 63" in str(
        framed[63]
    )
