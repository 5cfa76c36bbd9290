"""CIFAR's own files, made small: torchvision checks sums that the test sets to those of its files."""

import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision import datasets

from arrn.data import CifarBatches, open_dataset
from arrn.data.published import default_root
from arrn.errors import ArrnError

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 3, 32, 32), np.uint8)


def write(path: Path, content: dict[str, Any]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content))
    return hashlib.md5(path.read_bytes()).hexdigest()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with four training and two test images of two classes, as CIFAR-10 and as CIFAR-100."""
    for kind, folder, labels, names in (
        (datasets.CIFAR10, "cifar-10-batches-py", "labels", "label_names"),
        (datasets.CIFAR100, "cifar-100-python", "fine_labels", "fine_label_names"),
    ):
        place = tmp_path / folder
        train = {"data": PIXELS[:4].reshape(4, -1), labels: [0, 1, 1, 0]}
        test = {"data": PIXELS[4:].reshape(2, -1), labels: [1, 0]}
        monkeypatch.setattr(kind, "train_list", [["train_batch", write(place / "train_batch", train)]])
        monkeypatch.setattr(kind, "test_list", [["test_batch", write(place / "test_batch", test)]])
        sum_of_meta = write(place / "meta", {names: ["plane", "car"]})
        monkeypatch.setattr(kind, "meta", {"filename": "meta", "key": names, "md5": sum_of_meta})
    return tmp_path


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("<urlopen error: the network is down>")

    monkeypatch.setattr(datasets.cifar, "download_and_extract_archive", fail)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_the_published_files_are_read(root: Path, name: str) -> None:
    dataset = open_dataset(name, root)
    assert dataset.test is not None
    assert (dataset.name, dataset.class_names) == (name, ("plane", "car"))
    assert (dataset.train.labels.tolist(), dataset.test.labels.tolist()) == ([0, 1, 1, 0], [1, 0])
    assert dataset.mean is not None
    assert 0.4 < min(dataset.mean) < max(dataset.mean) < 0.6
    assert torch.equal(dataset.train.read(2), torch.from_numpy(PIXELS[2]))
    assert torch.equal(dataset.test.read(1), torch.from_numpy(PIXELS[5]))
    assert dataset.train.size(0) == (32, 32)
    assert dataset.test.where(1).endswith(" test image 1")


def test_the_folder_itself_will_do(root: Path) -> None:
    dataset = open_dataset(str(root / "cifar-10-batches-py"))
    assert (dataset.name, dataset.mean, len(dataset.train)) == ("cifar-10-batches-py", None, 4)
    with pytest.raises(ArrnError, match="both cifar10 and cifar100"):
        open_dataset("mine", root)


@pytest.mark.usefixtures("no_network")
def test_a_broken_copy_under_a_path_is_named_not_repaired(root: Path, tmp_path: Path) -> None:
    place = tmp_path / "own" / "cifar10"
    place.mkdir(parents=True)
    (root / "cifar-10-batches-py").rename(place / "cifar-10-batches-py")
    assert open_dataset(str(place)).mean is None
    (place / "cifar-10-batches-py" / "test_batch").unlink()
    with pytest.raises(ArrnError, match="cifar-10-batches-py is incomplete or corrupt"):
        open_dataset(str(place))


def test_what_is_read_is_the_readers_own(root: Path) -> None:
    source = CifarBatches("cifar10", root, "train")
    source.read(0).zero_()
    assert torch.equal(source.read(0), torch.from_numpy(PIXELS[0]))


def test_a_pickle_holds_no_images(root: Path) -> None:
    pickled = pickle.dumps(CifarBatches("cifar10", root, "train"))
    assert len(pickled) < 2000
    assert torch.equal(pickle.loads(pickled).read(3), torch.from_numpy(PIXELS[3]))


class Marker:
    """Unpickling it leaves a trace."""

    ran = False

    def __setstate__(self, state: object) -> None:
        Marker.ran = True

    def __getstate__(self) -> object:
        return {"x": 1}


@pytest.mark.usefixtures("no_network")
def test_a_file_with_another_sum_is_never_unpickled(root: Path) -> None:
    (root / "cifar-10-batches-py" / "train_batch").write_bytes(pickle.dumps(Marker()))
    with pytest.raises(ArrnError, match="cifar-10-batches-py is incomplete or corrupt"):
        CifarBatches("cifar10", root, "train")
    with pytest.raises(ArrnError, match="cannot download cifar10"):
        open_dataset("cifar10", root)
    assert not Marker.ran


@pytest.mark.usefixtures("no_network")
def test_without_a_network_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, root in (("cifar10", None), ("cifar100", tmp_path / "new")):
        with pytest.raises(ArrnError, match=rf"cannot download {name} to .*network is down.*--data ROOT") as caught:
            open_dataset(name, root)
        assert "\n" not in str(caught.value)


def test_downloads_go_to_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert default_root() == Path("/var/cache/arrn")
    for unset in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert default_root() == Path.home() / ".cache" / "arrn"


def test_a_download_is_asked_for_once(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fetch(url: str, target: str, **_: object) -> None:
        calls.append(url)
        (Path(target) / "cifar-10-batches-py").symlink_to(root / "cifar-10-batches-py")

    monkeypatch.setattr(datasets.cifar, "download_and_extract_archive", fetch)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert len(open_dataset("cifar10", empty).train) == 4
    assert len(calls) == 1
