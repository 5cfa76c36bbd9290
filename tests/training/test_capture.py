"""Steps replayed from a CUDA graph: the same numbers as steps taken one kernel at a time."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

import arrn
from arrn.data import Augmentation, Batch, Normalisation
from arrn.gpu import fast_path, reference_path
from arrn.training import Recipe, TrainingStep
from arrn.training.checkpoints import restore_state, state_tensors
from arrn.training.step import draws_on_device, order_memory

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
STEPS = 50

KINDS: dict[str, tuple[str, dict[str, Any], Recipe]] = {
    "an ARRN": ("arrn_small", {}, Recipe()),
    "an ARRN with the paper's draw": ("arrn_small", {"draw": "sample"}, Recipe()),
    "zero-preserving blocks": ("arrn_small", {"block": "zero_preserving"}, Recipe()),
    "levels without a block": ("arrn_small", {"blockless": [24, 6, 4]}, Recipe()),
    "channels dropped in blocks": ("arrn_small", {"block_dropout": 0.2}, Recipe()),
    "the difference form": ("arrn_small", {"form": "difference", "bracket_norm": True, "block_dropout": 0.2}, Recipe()),
    "dense blocks": ("arrn_small", {"form": "difference", "block": "dense", "block_dropout": 0.2}, Recipe()),
    "a transplant": ("arrn_mobilenet_v3_small", {}, Recipe()),
    "a baseline": ("mobilenet_v3_small", {}, Recipe(learning_rate=1e-4)),
    "random resolutions": ("resnet18_small_stem", {"width": 8}, Recipe(resolutions=(32, 16, 8))),
    "switchable norms": ("resnet18_switchable", {}, Recipe(resolutions=(32, 16, 8))),
    "a Fourier operator": ("fourier_operator", {}, Recipe()),
    "TrivialAugmentWide": ("arrn_small", {}, Recipe(trivial_augment=True)),
    "averaged weights": ("arrn_small", {}, Recipe(weight_averaging=0.9, cutout=0.4, label_smoothing=0.1)),
    "shares that change": ("arrn_small", {}, Recipe(shares=((32, 0.4), (8, 0.6)), final_shares=((32, 1.0),))),
    "SGD": ("arrn_small", {}, Recipe(optimizer="sgd", momentum=0.9, learning_rate=1e-2)),
}


def make_step(name: str, options: dict[str, Any], recipe: Recipe, device: str, captured: bool) -> TrainingStep:
    torch.manual_seed(0)
    model = order_memory(arrn.create_model(name, num_classes=10, **options).to(device), ndim=2).train()
    normalisation = Normalisation((0.5,) * 3, (0.25,) * 3)
    augmentation = Augmentation(normalisation, trivial_augment=recipe.trivial_augment, cutout=recipe.cutout)
    return TrainingStep(model, augmentation, recipe, STEPS, seed=0, captured=captured)


def batches(device: str, count: int = 32) -> list[Batch]:
    generator = torch.Generator().manual_seed(0)
    made = []
    for _ in range(4):
        images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
        labels = torch.randint(0, 10, (count,), generator=generator)
        made.append(Batch(images.to(device), labels.to(device)))
    return made


def losses(step: TrainingStep, data: list[Batch], numbers: range = range(STEPS)) -> torch.Tensor:
    totals = []
    for number in numbers:
        step(data[number % len(data)], number)
        totals.append(step.totals[0] / len(data[0].labels))
    return torch.diff(torch.tensor(totals), prepend=torch.zeros(1))


def test_a_cpu_takes_its_steps_as_always() -> None:
    captured = losses(make_step(*KINDS["an ARRN"], "cpu", captured=True), batches("cpu", 4), range(2))
    assert torch.equal(
        captured, losses(make_step(*KINDS["an ARRN"], "cpu", captured=False), batches("cpu", 4), range(2))
    )


def test_a_draw_by_the_host_is_told_from_one_on_the_device() -> None:
    assert draws_on_device(arrn.create_model("arrn_small"))
    assert draws_on_device(nn.Linear(1, 1))
    assert not draws_on_device(arrn.create_model("arrn_small", draw="batch"))


@GPU
@pytest.mark.parametrize("kind", KINDS)
def test_fifty_losses_agree_with_the_eager_steps(kind: str) -> None:
    with reference_path():
        eager = losses(make_step(*KINDS[kind], "cuda", captured=False), batches("cuda"))
    with fast_path():
        captured = losses(make_step(*KINDS[kind], "cuda", captured=True), batches("cuda"))
    # Rounding grows from step to step in either; a wrong seed, rate or gradient shows at once.
    torch.testing.assert_close(captured[:10], eager[:10], rtol=0.02, atol=0.02)
    torch.testing.assert_close(captured, eager, rtol=0.1, atol=0.1)
    assert eager.min() < eager[0]


@GPU
def test_it_goes_on_from_a_checkpoint_as_if_it_had_not_stopped() -> None:
    whole, first = (make_step(*KINDS["an ARRN"], "cuda", captured=True) for _ in range(2))
    data = batches("cuda")
    expected = losses(whole, data, range(20))
    losses(first, data, range(8))
    second = make_step(*KINDS["an ARRN"], "cuda", captured=True)
    restore_state(second, copy.deepcopy(state_tensors(first)))
    torch.testing.assert_close(losses(second, data, range(8, 20)), expected[8:], rtol=0.02, atol=0.02)


@GPU
def test_a_recorded_step_averages_the_weights_with_the_share_of_each_step() -> None:
    made = make_step("arrn_small", {}, Recipe(weight_averaging=0.9), "cuda", captured=True)
    names = [name for name, tensor in made.model.state_dict().items() if tensor.is_floating_point()]
    expected = {name: made.model.state_dict()[name].clone() for name in names}
    data = batches("cuda")
    for number in range(10):
        made(data[number % len(data)], number)
        kept = min(0.9, (number + 1) / (number + 10))
        expected = {name: kept * expected[name] + (1 - kept) * made.model.state_dict()[name] for name in names}
    found = made.result.state_dict()
    for name in names:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-5)
