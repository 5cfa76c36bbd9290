"""Random-resolution training: equal shares, stacked where they can be, private batch norms where there are any."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

import arrn
from arrn.data import Augmentation, Batch, Normalisation
from arrn.errors import ArrnError
from arrn.models.rivals import SwitchableBatchNorm2d
from arrn.nn import ARRN
from arrn.signal import resample
from arrn.training import Recipe, TrainingStep
from arrn.training.step import share_out, uses_all_levels
from small_runs import TINY


def sixes(size: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(6, 3, size, size), torch.arange(6)


def test_a_fixed_network_sees_all_resolutions_in_one_batch_at_its_size() -> None:
    model = arrn.create_model("resnet18_small_stem", size=8, width=2)
    images, labels = sixes()
    ((stacked, stacked_labels),) = share_out(model, images, labels, (8, 4, 2))
    assert torch.equal(stacked_labels, labels)
    low = [resample(resample(images[n : n + 2], size), 8) for n, size in ((0, 8), (2, 4), (4, 2))]
    torch.testing.assert_close(stacked, torch.cat(low))


def test_an_arrn_gets_a_batch_for_each_level() -> None:
    model = arrn.create_model("arrn", **TINY)
    images, labels = sixes()
    parts = share_out(model, images, labels, (8, 6, 4))
    assert [(tuple(x.shape), y.tolist()) for x, y in parts] == [
        ((4, 3, 8, 8), [0, 1, 2, 3]),
        ((2, 3, 4, 4), [4, 5]),
    ]
    torch.testing.assert_close(parts[1][0], resample(images[4:], 4))


def test_resolutions_above_the_images_leave_them() -> None:
    images, labels = sixes()
    ((same, _),) = share_out(arrn.create_model("arrn", **TINY), images, labels, (32,))
    assert torch.equal(same, images)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_shares_differ_by_one_at_most_and_nothing_is_lost(count: int) -> None:
    images, labels = torch.randn(count, 3, 8, 8), torch.arange(count)
    parts = share_out(arrn.create_model("arrn", **TINY), images, labels, (8, 4))
    assert sorted(torch.cat([y for _, y in parts]).tolist()) == list(range(count))
    lengths = [len(y) for _, y in parts]
    assert max(lengths) - min(lengths) <= 1 or count == 1


@pytest.mark.parametrize("count", [1, 3, 10, 16])
def test_uneven_shares_are_rounded_and_nothing_is_lost(count: int) -> None:
    images, labels = torch.randn(count, 3, 8, 8), torch.arange(count)
    parts = share_out(arrn.create_model("arrn", **TINY), images, labels, (8, 5, 4), (0.5, 0.0, 0.5))
    assert sorted(torch.cat([y for _, y in parts]).tolist()) == list(range(count))
    found = {len(x[0, 0]): len(x) for x, _ in parts}
    assert abs(found.get(8, 0) - count / 2) <= 0.5
    unequal = share_out(arrn.create_model("arrn", **TINY), *sixes(), (8, 4), (2 / 3, 1 / 3))
    assert [len(y) for _, y in unequal] == [4, 2]


def take_four_steps(name: str, options: dict[str, object], recipe: Recipe, watch: Callable[..., None]) -> None:
    """Of 20 samples; `watch` is a forward hook of an ARRN's dropout, or of another network."""
    model = arrn.create_model(name, num_classes=3, **options)
    step = TrainingStep(model, Augmentation(Normalisation((0.5,) * 3, (0.25,) * 3)), recipe, 4, 0)
    (model.dropout if isinstance(model, ARRN) else model).register_forward_hook(watch)
    for number in range(4):
        step(Batch(torch.randint(0, 256, (20, 3, 8, 8), dtype=torch.uint8), torch.arange(20) % 3), number)


def test_shares_hold_for_an_arrn_by_its_dropout_and_others_take_over() -> None:
    recipe = Recipe(shares=((8, 0.5), (6, 0.2), (4, 0.3)), final_shares=((8, 0.9), (4, 0.1)), shares_change_at=0.5)
    kept: list[tuple[int, ...]] = []  # how many samples keep the level above 6, and the one above 4
    take_four_steps("arrn", TINY | {"blockless": [6]}, recipe, lambda _, given, drawn: kept.append(drawn.levels))
    assert kept == [(10, 14), (10, 14), (18, 18), (18, 18)]


def test_shares_hold_for_a_switchable_network_by_its_resolutions_and_others_take_over() -> None:
    shares = Recipe(shares=((8, 0.75), (4, 0.25)), final_shares=((8, 0.4), (4, 0.6)), shares_change_at=0.7)
    recipe = shares.with_options({"resolutions": [8, 4]})
    seen: list[tuple[int, int]] = []
    take_four_steps(
        "resnet18_switchable",
        {"sizes": [8, 4]},
        recipe,
        lambda _, given, answer: seen.append((given[0].shape[-1], len(answer))),
    )
    assert seen == [(8, 15), (4, 5)] * 3 + [(8, 8), (4, 12)]


def test_a_step_goes_on_with_the_shares_of_its_number() -> None:
    recipe = Recipe(shares=((8, 1.0),), final_shares=((4, 1.0),))
    model = arrn.create_model("arrn", **TINY)
    step = TrainingStep(model, Augmentation(Normalisation((0.5,) * 3, (0.25,) * 3)), recipe, 10, 0)
    rates = []
    for number in (4, 5, 9, 0):
        step(Batch(torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8), torch.zeros(4, dtype=torch.int64)), number)
        rates.append(model.dropout.p)
    assert rates == [(0.0,), (1.0,), (1.0,), (0.0,)]


def test_shares_without_resolutions_mean_nothing_to_a_network_without_levels() -> None:
    augmentation = Augmentation(Normalisation((0.5,) * 3, (0.25,) * 3))
    with pytest.raises(ArrnError, match="this recipe has none"):
        TrainingStep(nn.Conv2d(3, 3, 1), augmentation, Recipe(shares=((8, 1.0),)), 10, 0)


def test_a_switchable_network_trains_the_batch_norms_of_every_size() -> None:
    model = arrn.create_model("resnet18_switchable", sizes=(16, 8), num_classes=3)
    recipe = Recipe(resolutions=(16, 8))
    step = TrainingStep(model, Augmentation(Normalisation((0.5,) * 3, (0.25,) * 3)), recipe, 5, 0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    step(Batch(torch.randint(0, 256, (8, 3, 16, 16), dtype=torch.uint8), torch.arange(8) % 3), 0)
    norms = [name for name, module in model.named_modules() if isinstance(module, SwitchableBatchNorm2d)]
    after = model.state_dict()
    assert norms
    for name in norms:
        for size in (0, 1):
            private = f"{name}.norms.{size}"
            assert after[f"{private}.num_batches_tracked"] == 1
            assert not torch.equal(after[f"{private}.running_mean"], before[f"{private}.running_mean"])
            assert not torch.equal(after[f"{private}.weight"], before[f"{private}.weight"])
        assert not torch.equal(after[f"{name}.norms.0.running_mean"], after[f"{name}.norms.1.running_mean"])


def test_parts_make_one_step_whose_gradient_is_that_of_the_whole_batch() -> None:
    """Without batch norms, sharing out over one resolution or over the same one twice is the same step."""

    def weights(resolutions: tuple[int, ...]) -> torch.Tensor:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 3))
        recipe = Recipe(resolutions=resolutions, flip=False, crop_padding=0.0)
        normalisation = Normalisation((0.5,) * 3, (0.25,) * 3)
        step = TrainingStep(model, Augmentation(normalisation, False, 0.0), recipe, 5, 0)
        torch.manual_seed(2)
        step(Batch(torch.randint(0, 256, (8, 3, 8, 8), dtype=torch.uint8), torch.arange(8) % 3), 0)
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    torch.testing.assert_close(weights((8, 8)), weights(()), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "options", "grids", "resolutions", "all_of_it"),
    [
        ("arrn", TINY, [8], (), True),
        ("arrn", TINY, [8, 4], (), False),
        ("arrn", TINY, [4], (), False),
        ("arrn", TINY, [8], (8, 4), True),
        ("arrn", TINY, [8], (4, 3), False),
        ("arrn", TINY, [8, 4], (8, 4), False),
        ("resnet18_switchable", {"sizes": [8, 4]}, [8], (8, 4), True),
        ("resnet18_switchable", {"sizes": [8, 4]}, [8], (8,), False),
        ("resnet18_switchable", {"sizes": [8, 4]}, [8, 4], (8, 4), False),
        ("resnet18_small_stem", {"size": 8, "width": 2}, [8, 4], (4,), True),
    ],
)
def test_which_batches_run_all_of_a_network(
    name: str, options: dict[str, object], grids: list[int], resolutions: tuple[int, ...], all_of_it: bool
) -> None:
    model = arrn.create_model(name, **options)
    assert uses_all_levels(model, [(n, n) for n in grids], resolutions) is all_of_it
