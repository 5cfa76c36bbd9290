"""The sample that ships with the package."""

import math

import pytest
import torch

from arrn.data import examine, open_dataset
from arrn.data.published import SAMPLE_FOLDER
from pictures import SHARED


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
