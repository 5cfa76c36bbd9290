"""Random-resolution training: equal shares, stacked where they can be, private batch norms where there are any."""

import pytest
import torch
from torch import nn

import arrn
from arrn.data import Augmentation, Batch, Normalisation
from arrn.models.rivals import SwitchableBatchNorm2d
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
