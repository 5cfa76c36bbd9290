"""STL10, TinyImageNet and Imagenette in the layouts that their authors publish, made small; and our sample."""

import math
import os
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision import datasets

from arrn.data import BadSample, Stl10Binary, TinyImageNet, examine, open_dataset
from arrn.data.published import SAMPLE_FOLDER
from arrn.errors import ArrnError
from pictures import SHARED, encoded, picture, write_folder, write_parquet

IMAGES = np.random.default_rng(0).integers(0, 256, (7, 96, 96, 3), np.uint8)


@pytest.fixture
def stl10(tmp_path: Path) -> Path:
    """Four training and three test images of two classes."""
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    for split, images, labels in (("train", IMAGES[:4], [1, 2, 2, 1]), ("test", IMAGES[4:], [2, 1, 1])):
        (folder / f"{split}_X.bin").write_bytes(images.transpose(0, 3, 2, 1).tobytes())  # columns first
        (folder / f"{split}_y.bin").write_bytes(bytes(labels))
    (folder / "class_names.txt").write_text("airplane\nbird\n")
    return tmp_path


def test_stl10_is_read_from_its_binary_files(stl10: Path) -> None:
    for name, root in (("stl10", stl10), ("mine", stl10 / "stl10_binary")):
        dataset = open_dataset(name, root)
        assert isinstance(dataset.test, Stl10Binary)
        assert (dataset.name, dataset.class_names) == (name, ("airplane", "bird"))
        assert (dataset.train.labels.tolist(), dataset.test.labels.tolist()) == ([0, 1, 1, 0], [1, 0, 0])
        assert torch.equal(dataset.test.read(1), torch.from_numpy(IMAGES[5]).permute(2, 0, 1))
        assert set(examine(dataset.train, decode=True).sizes) == {(96, 96)}
    assert len(pickle.dumps(dataset.test)) < 1500
    assert torch.equal(pickle.loads(pickle.dumps(dataset.test)).read(2), dataset.test.read(2))


def test_torchvision_reads_the_same(stl10: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.STL10, "_check_integrity", lambda self: True)
    reference = datasets.STL10(stl10, split="train")
    source = open_dataset("stl10", stl10).train
    for index in range(4):
        image, label = reference[index]
        assert torch.equal(source.read(index), torch.from_numpy(np.array(image)).permute(2, 0, 1))
        assert label == int(source.labels[index])


def test_stl10_in_parts_is_refused(stl10: Path) -> None:
    file = stl10 / "stl10_binary" / "test_X.bin"
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(ArrnError, match=r"test_X\.bin has 82,939 bytes, but the 3 labels beside it need 82,944"):
        open_dataset("stl10", stl10)
    (stl10 / "stl10_binary" / "test_y.bin").unlink()
    with pytest.raises(ArrnError, match=r"test_y\.bin is missing"):
        open_dataset("stl10", stl10)


def fail(*_: object, **__: object) -> None:
    raise OSError("<urlopen error: the network is down>")


@pytest.mark.parametrize("name", ["stl10", "tinyimagenet"])
def test_without_a_network_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(datasets.STL10, "download", fail)
    monkeypatch.setattr(datasets.utils, "download_url", fail)
    for root in (None, tmp_path / "new"):
        with pytest.raises(ArrnError, match=rf"cannot download {name} to .*network is down.*--data ROOT"):
            open_dataset(name, root)


def test_a_download_is_read(stl10: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(self: datasets.STL10) -> None:
        shutil.copytree(stl10 / "stl10_binary", Path(self.root) / "stl10_binary")

    monkeypatch.setattr(datasets.STL10, "download", fetch)
    assert len(open_dataset("stl10", tmp_path / "new").train) == 4


WNIDS = ("n01443537", "n01629819", "n01641577")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Two training images a class, three for validation, and the published test images, which have no labels."""
    top = tmp_path / "tiny-imagenet-200"
    for wnid in WNIDS:
        (top / "train" / wnid / "images").mkdir(parents=True)
        (top / "train" / wnid / f"{wnid}_boxes.txt").write_text("")
        for n in range(2):
            (top / "train" / wnid / "images" / f"{wnid}_{n}.JPEG").write_bytes(encoded(picture(8, 8, n), "JPEG"))
    for split in ("val", "test"):
        (top / split / "images").mkdir(parents=True)
        for n in range(3):
            (top / split / "images" / f"{split}_{n}.JPEG").write_bytes(encoded(picture(8, 8, 10 + n), "JPEG"))
    lines = [f"val_{n}.JPEG\t{WNIDS[k]}\t0\t32\t44\t62" for n, k in enumerate((2, 0, 2))]
    (top / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    words = [
        "n00001740\tentity",
        f"{WNIDS[0]}\tgoldfish, Carassius auratus",
        f"{WNIDS[1]}\tfrog",
        f"{WNIDS[2]}\tfrog, x",
    ]
    (top / "words.txt").write_text("\n".join(words) + "\n")
    return tmp_path


def zipped(root: Path) -> Path:
    archive = root / "zip" / "tiny-imagenet-200.zip"
    archive.parent.mkdir()
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted((root / "tiny-imagenet-200").rglob("*")):
            file.write(path, path.relative_to(root))
    return archive


def test_tinyimagenet_is_read_from_its_folder_and_from_its_archive(tiny: Path) -> None:
    archive = zipped(tiny)
    for root in (tiny, tiny / "tiny-imagenet-200", archive.parent, archive):
        dataset = open_dataset("tinyimagenet", root)
        assert isinstance(dataset.test, TinyImageNet)
        assert dataset.class_names == ("goldfish", f"frog ({WNIDS[1]})", f"frog ({WNIDS[2]})")
        assert (dataset.train.labels.tolist(), dataset.test.labels.tolist()) == ([0, 0, 1, 1, 2, 2], [2, 0, 2])
        assert set(examine(dataset.train, decode=True).sizes) == set(examine(dataset.test).sizes) == {(8, 8)}
        copy = pickle.loads(pickle.dumps(dataset.test))
        assert torch.equal(copy.read(1), dataset.test.read(1))
        assert dataset.test.where(1).endswith("val/images/val_1.JPEG")
    (tiny / "tiny-imagenet-200" / "words.txt").unlink()
    assert open_dataset("mine", tiny).class_names == WNIDS


@pytest.mark.parametrize("damage", ["corrupt", "encrypted", "bomb"])
def test_a_member_of_an_archive_that_cannot_be_unpacked_is_named(tiny: Path, damage: str) -> None:
    archive = tiny / "zip" / "tiny-imagenet-200.zip"
    archive.parent.mkdir()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted((tiny / "tiny-imagenet-200").rglob("*")):
            file.write(path, path.relative_to(tiny))
        entry = file.getinfo("tiny-imagenet-200/val/images/val_1.JPEG")
    content = bytearray(archive.read_bytes())
    listed = content.rindex(entry.filename.encode()) - 46
    start = entry.header_offset + 30 + len(entry.filename)
    if damage == "corrupt":
        content[start : start + entry.compress_size] = b"\xa5" * entry.compress_size
    elif damage == "encrypted":
        content[listed + 8] |= 1
    else:
        content[listed + 24 : listed + 28] = (2**31).to_bytes(4, "little")
    archive.write_bytes(content)
    test = open_dataset("tinyimagenet", archive).test
    assert test is not None
    assert test.read(0).shape == (3, 8, 8)
    with pytest.raises(
        ArrnError, match=r"val_1\.JPEG(: cannot be read: .| unpacks from \d+ to 2,147,483,648 bytes)"
    ) as caught:
        test.read(1)
    assert "\n" not in str(caught.value)


def test_pipes_are_refused_and_not_waited_for(tiny: Path, stl10: Path) -> None:
    image = tiny / "tiny-imagenet-200" / "val" / "images" / "val_1.JPEG"
    image.unlink()
    os.mkfifo(image)
    test = open_dataset("tinyimagenet", tiny / "tiny-imagenet-200").test
    assert test is not None
    with pytest.raises(BadSample, match=r"val_1\.JPEG: cannot be read: it is a FIFO"):
        test.read(1)
    labels = stl10 / "stl10_binary" / "test_y.bin"
    labels.unlink()
    os.mkfifo(labels)
    with pytest.raises(ArrnError, match=r"test_y\.bin is missing"):
        open_dataset("stl10", stl10)


def test_stl10s_labels_and_names_are_bounded(stl10: Path) -> None:
    folder = stl10 / "stl10_binary"
    (folder / "test_y.bin").write_bytes(bytes([2, 200, 0]))
    test = open_dataset("stl10", stl10).test
    assert test is not None
    for index, what in ((1, "has label 199"), (2, "has no label")):
        with pytest.raises(
            BadSample, match=rf"test_X\.bin image {index}: {what}, but the 2 classes are numbered 0 to 1"
        ):
            test.read(index)
    (folder / "class_names.txt").write_bytes(b"\xff\xfe bird")
    assert open_dataset("stl10", stl10).class_names == ("\ufffd\ufffd", "bird")
    for file, most in (("class_names.txt", 2**20), ("train_y.bin", 2**25)):
        with (folder / file).open("wb") as long:
            long.truncate(most + 1)
        with pytest.raises(ArrnError, match=rf"{file}.* {most + 1:,}"):
            open_dataset("stl10", stl10)


def test_a_missing_image_is_named(tiny: Path) -> None:
    (tiny / "tiny-imagenet-200" / "val" / "images" / "val_2.JPEG").unlink()
    for root in (tiny, zipped(tiny)):
        test = open_dataset("tinyimagenet", root).test
        assert test is not None
        with pytest.raises(BadSample, match=r"val_2\.JPEG: no such file"):
            examine(test)
        assert len(examine(test, skip_bad=True).sizes) == 2


def test_annotations_that_mean_nothing_are_named(tiny: Path) -> None:
    annotations = tiny / "tiny-imagenet-200" / "val" / "val_annotations.txt"
    for text, complaint in (("val_0.JPEG\tn9\n", "line 1 should be an image and"), ("", "lists no images")):
        annotations.write_text(text)
        with pytest.raises(ArrnError, match=complaint):
            open_dataset("tinyimagenet", tiny)
    archive = zipped(tiny)
    archive.write_bytes(archive.read_bytes()[:500])
    with pytest.raises(ArrnError, match="truncated or not a zip archive"):
        open_dataset("tinyimagenet", archive.parent)


def test_the_archive_is_fetched_with_its_sum_and_read_as_it_is(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, asked = zipped(tiny), []

    def fetch(url: str, root: str, filename: str, md5: str) -> None:
        asked.append((url, md5))
        Path(root).mkdir()
        shutil.copy(archive, Path(root) / filename)

    monkeypatch.setattr(datasets.utils, "download_url", fetch)
    assert len(open_dataset("tinyimagenet", tiny / "new").train) == 6
    assert len(open_dataset("tinyimagenet", tiny / "new").train) == 6
    url = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
    assert asked == [(url, "90528d7ca1a48142e341f4ef8d21d0de")]


def test_imagenette_is_read_from_its_folders_and_from_parquet(tmp_path: Path) -> None:
    folders = {"n01440764": [(6, 8)], "n03888257": [(5, 5), (4, 4)]}
    for split in ("train", "val"):
        write_folder(tmp_path / "imagenette2-160" / split, folders)
    for root in (tmp_path, tmp_path / "imagenette2-160"):
        dataset = open_dataset("imagenette", root)
        assert dataset.test is not None
        assert (dataset.name, dataset.class_names) == ("imagenette", ("tench", "parachute"))
        assert dataset.test.class_names == dataset.class_names
        assert (len(dataset.train), len(dataset.test)) == (3, 3)
    write_parquet(tmp_path / "files" / "train.parquet", [encoded(picture(4, 4))] * 2, [0, 1], ["tench", "parachute"])
    assert open_dataset("imagenette", tmp_path / "files").class_names == ("tench", "parachute")
    with pytest.raises(ArrnError, match=r"imagenette is not downloaded: .* --data ROOT"):
        open_dataset("imagenette")


def test_it_is_small_balanced_and_whole() -> None:
    dataset = open_dataset("sample")
    assert dataset.test is not None
    assert sum(file.stat().st_size for file in SAMPLE_FOLDER.iterdir()) < 4_000_000
    for source, count in ((dataset.train, 500), (dataset.test, 100)):
        assert source.labels.bincount().tolist() == [count] * 10
        assert set(examine(source, decode=True).sizes) == {(32, 32)}


def test_the_published_statistics_are_the_samples_too() -> None:
    dataset = open_dataset("sample")
    images = torch.stack([dataset.train.read(index) for index in range(0, 5000, 5)]).double() / 255
    assert images.mean((0, 2, 3)).tolist() == pytest.approx(dataset.mean, abs=0.01)
    assert images.std((0, 2, 3)).tolist() == pytest.approx(dataset.std, abs=0.01)


@pytest.mark.skipif(not (SHARED / "cifar10").is_dir(), reason="the whole of CIFAR-10 is not at hand")
def test_it_holds_the_first_images_of_each_class() -> None:
    whole, sample = open_dataset("cifar10", SHARED / "cifar10").test, open_dataset("sample").test
    assert whole is not None
    assert sample is not None
    for label in (0, 7):
        originals = torch.nonzero(whole.labels == label)[:100, 0].tolist()
        copies = torch.nonzero(sample.labels == label)[:, 0].tolist()
        errors = [
            (whole.read(original).double() - sample.read(copy).double()).square().mean().item()
            for original, copy in zip(originals, copies, strict=True)
        ]
        assert 10 * math.log10(255**2 / (sum(errors) / 100)) > 33
