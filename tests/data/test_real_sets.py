"""A few hundred rows of real sets, where they are at hand."""

import pickle

import pytest
import torch
from torchvision.io import ImageReadMode, decode_image

from arrn.data import SOUND, ParquetFiles, Selection, examine, hold_out, open_dataset
from pictures import SHARED

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data sets are not at hand")


@pytest.mark.parametrize(
    ("name", "train", "test", "side"), [("cifar10", 50000, 10000, 32), ("imagenette96", 9469, 3925, 96)]
)
def test_a_real_set_is_read(name: str, train: int, test: int, side: int) -> None:
    dataset = open_dataset(name, SHARED / name)
    assert dataset.test is not None
    assert (len(dataset.train), len(dataset.test), len(dataset.class_names)) == (train, test, 10)
    few = Selection(dataset.train, range(0, train, train // 200))
    assert set(examine(few, decode=True).sizes) == {(side, side)}
    assert torch.equal(pickle.loads(pickle.dumps(few)).read(3), few.read(3))
    _, held_out = hold_out(dataset.train, 1000, seed=0)
    assert len(held_out) == 1000


@pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning")
@pytest.mark.parametrize(("name", "tolerance"), [("cifar10", 0), ("imagenette96", 3)])
def test_torchvision_decodes_the_same(name: str, tolerance: int) -> None:
    source = open_dataset(name, SHARED / name).test
    assert isinstance(source, ParquetFiles)
    for index in range(0, 300, 3):
        data = torch.frombuffer(bytearray(source._encoded(index)), dtype=torch.uint8)
        reference = decode_image(data, ImageReadMode.RGB)
        assert (source.read(index).int() - reference.int()).abs().max() <= tolerance


def test_spoken_digits_are_read() -> None:
    dataset = open_dataset("fsdd", SHARED / "fsdd")
    assert dataset.test is not None
    assert (len(dataset.train), len(dataset.test), dataset.train.form) == (2700, 300, SOUND)
    found = examine(dataset.test, decode=True)
    assert (set(found.sizes), found.remarks) == ({(8000,)}, [])
    assert float(dataset.train.read(0).float().std()) > 100


@pytest.mark.parametrize(("file", "side"), [("adrenalmnist3d", 28), ("adrenalmnist3d_64", 64)])
def test_volumes_are_read(file: str, side: int) -> None:
    dataset = open_dataset(str(SHARED / "adrenalmnist3d" / f"{file}.npz"))
    assert dataset.test is not None
    assert (dataset.name, len(dataset.train), len(dataset.test)) == (file, 1188, 298)
    assert dataset.test.size(0) == (side, side, side)
    assert dataset.test.read(0).shape == (1, side, side, side)


def test_of_volumes_at_two_sizes_the_larger_are_read() -> None:
    dataset = open_dataset("adrenalmnist3d", SHARED / "adrenalmnist3d")
    assert dataset.name == "adrenalmnist3d_64"
    assert dataset.remark == "adrenalmnist3d_64.npz is read, the largest size; there is also adrenalmnist3d.npz"
