"""Answers for a handful of images of any sizes: grouped by level, in the order they came."""

import weakref
from collections.abc import Iterator

import pytest
import torch

import arrn
from arrn.data import Normalisation
from arrn.evaluation import predict
from arrn.nn import ARRN
from arrn.testing import awaken_norms

SIZES = [(8, 8), (40, 30), (3, 5), (9, 9), (16, 16), (4, 4), (8, 7)]
NORMALISATION = Normalisation((0.5,) * 3, (0.25,) * 3)


@pytest.fixture
def model() -> ARRN:
    model = arrn.create_model("arrn", sizes=(16, 8, 4), features=(4, 6, 8), depth=1, num_classes=6)
    awaken_norms(model, torch.randn(8, 3, 16, 16), 0)
    return model


@pytest.fixture
def images() -> list[torch.Tensor]:
    return [torch.randint(0, 256, (3, *size), dtype=torch.uint8) for size in SIZES]


@pytest.mark.parametrize("policy", [None, "exact", "cheap"])
@torch.no_grad()
def test_each_image_is_answered_as_if_it_were_alone(model: ARRN, images: list[torch.Tensor], policy: str) -> None:
    found = predict(model, images, NORMALISATION, policy)
    for image, prediction in zip(images, found, strict=True):
        chances = model(NORMALISATION(image[None]), policy=policy).softmax(dim=1)[0]
        assert prediction.label == int(chances.argmax())
        assert prediction.probability == pytest.approx(float(chances.max()), rel=1e-4)
        assert prediction.grid == model.grids[model.level(tuple(image.shape[1:]), policy)]
        assert prediction.seconds > 0


def test_images_of_one_level_run_together(model: ARRN, images: list[torch.Tensor]) -> None:
    runs: list[int] = []
    model.base.register_forward_hook(lambda module, inputs, output: runs.append(len(inputs[0])))
    predict(model, images, NORMALISATION)
    assert sorted(runs) == [1, 3, 3]


def test_images_are_let_go_before_all_are_read(model: ARRN, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
    most = 0

    def read() -> Iterator[torch.Tensor]:
        nonlocal most
        for number in range(20):
            image = torch.full((3, 8 + number % 2, 8), number, dtype=torch.uint8)
            alive.add(image)
            most = max(most, len(alive))
            yield image

    together = predict(model, read(), NORMALISATION)
    assert most == 20
    monkeypatch.setattr("arrn.evaluation.accuracy._AFFORDABLE", 3 * 3 * 9 * 8)
    most = 0
    few = predict(model, read(), NORMALISATION)
    assert most <= 4  # three, and the one that the loop holds
    assert [each.label for each in few] == [each.label for each in together]
    assert [each.grid for each in few] == [(8, 8), (16, 16)] * 10


def test_other_networks_answer_at_their_own_size(images: list[torch.Tensor]) -> None:
    fixed = arrn.create_model("resnet18_small_stem", size=8, width=2)
    assert {prediction.grid for prediction in predict(fixed, images, NORMALISATION)} == {(8, 8)}
    fourier = arrn.create_model("fourier_operator", size=16, features=4, modes=2, depth=1)
    grids = [prediction.grid for prediction in predict(fourier, images, NORMALISATION)]
    assert grids == [(16, 16) if size == (40, 30) else size for size in SIZES]


def test_no_images_no_answers(model: ARRN) -> None:
    assert predict(model, [], NORMALISATION) == []
