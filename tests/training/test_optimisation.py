"""The optimiser and its learning rate, against torch's own."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arrn.training import PAPER_CIFAR, Recipe, learning_rate, make_optimizer


@given(st.integers(2, 60), st.floats(1e-4, 1.0), st.floats(0.0, 1e-4))
def test_the_learning_rate_is_torchs_cosine(steps: int, high: float, low: float) -> None:
    recipe = Recipe(learning_rate=high, final_learning_rate=low)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=high)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps - 1, eta_min=low)
    for step in range(steps):
        assert learning_rate(recipe, step, steps) == pytest.approx(schedule.get_last_lr()[0], rel=1e-6, abs=1e-12)
        optimizer.step()
        schedule.step()


def test_it_begins_and_ends_where_the_paper_says() -> None:
    assert learning_rate(PAPER_CIFAR, 0, 39000) == 1e-3
    assert learning_rate(PAPER_CIFAR, 38999, 39000) == pytest.approx(1e-5, rel=1e-12)
    assert learning_rate(PAPER_CIFAR, 0, 1) == 1e-3


@given(st.integers(1, 200), st.integers(1, 50), st.floats(1e-4, 1.0), st.floats(0.0, 1e-4))
def test_without_a_warm_up_it_is_half_a_cosine_to_the_bit(steps: int, epochs: int, high: float, low: float) -> None:
    recipe = Recipe(epochs=epochs, learning_rate=high, final_learning_rate=low)
    for step in range(0, steps, 7):
        done = step / max(1, steps - 1)
        half_cosine = low + (high - low) * (1 + math.cos(math.pi * done)) / 2
        assert learning_rate(recipe, step, steps) == half_cosine


@given(st.integers(1, 30), st.integers(1, 20), st.floats(0, 1, exclude_max=True))
def test_a_warm_up_is_a_straight_line_and_then_the_cosine_of_a_shorter_run(
    epochs: int, per_epoch: int, part: float
) -> None:
    recipe = Recipe(epochs=epochs, warm_up=part * epochs, final_learning_rate=0.0)
    steps = epochs * per_epoch
    warm = round(recipe.warm_up * per_epoch)
    rates = [learning_rate(recipe, step, steps) for step in range(steps)]
    assert rates[:warm] == pytest.approx([1e-3 * (n + 1) / (warm + 1) for n in range(warm)])
    shorter = Recipe(final_learning_rate=0.0)
    assert rates[warm:] == [learning_rate(shorter, step, steps - warm) for step in range(steps - warm)]


def weights_after(optimizer: torch.optim.Optimizer, parameter: torch.nn.Parameter) -> torch.Tensor:
    for step in range(4):
        parameter.grad = torch.linspace(-1, 1, 5) * (step + 1)
        optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_every_option_of_the_recipe_reaches_the_optimiser(name: str) -> None:
    recipe = Recipe(optimizer=name, learning_rate=0.1, betas=(0.7, 0.8), momentum=0.6, weight_decay=0.3)  # type: ignore[arg-type]
    mine, theirs = (torch.nn.Parameter(torch.arange(5.0)) for _ in range(2))
    reference = {
        "adamw": lambda: torch.optim.AdamW([theirs], 0.1, betas=(0.7, 0.8), weight_decay=0.3),
        "sgd": lambda: torch.optim.SGD([theirs], 0.1, momentum=0.6, weight_decay=0.3),
    }[name]()
    found = weights_after(make_optimizer(recipe, [mine]), mine)
    torch.testing.assert_close(found, weights_after(reference, theirs))


@pytest.mark.parametrize("momentum", [0.9, 0.0])
def test_nesterovs_momentum_is_torchs(momentum: float) -> None:
    recipe = Recipe(optimizer="sgd", learning_rate=0.1, momentum=momentum, nesterov=True, weight_decay=0.0)
    mine, theirs = (torch.nn.Parameter(torch.arange(5.0)) for _ in range(2))
    reference = torch.optim.SGD([theirs], 0.1, momentum=momentum, nesterov=momentum > 0)
    found = weights_after(make_optimizer(recipe, [mine]), mine)
    torch.testing.assert_close(found, weights_after(reference, theirs))
