"""The accuracy loop against the most straightforward one, and how lower resolutions are made."""

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as tv

import arrn
from arrn.data import Bucket, MemoryBatches, Normalisation
from arrn.errors import ArrnError
from arrn.evaluation import (
    RESAMPLERS,
    Answers,
    Setting,
    affordable_batch,
    check_resampler,
    evaluate,
    lower,
    settings_for,
)
from arrn.nn import ARRN
from arrn.nn.introspection import forward_memory
from arrn.signal import KaiserSinc, resample
from arrn.signal.kernels import kernel_options
from arrn.testing import awaken_norms

SIZES = [(8, 8), (11, 7), (4, 4), (16, 16), (3, 3), (20, 6)]
PER_SIZE, CLASSES = 5, 4
NORMALISATION = Normalisation((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))


def make_buckets(sizes: list[tuple[int, int]]) -> list[Bucket]:
    generator = torch.Generator().manual_seed(5)
    return [
        Bucket(
            torch.randint(0, 256, (PER_SIZE, 3, *size), dtype=torch.uint8, generator=generator),
            torch.randint(0, CLASSES, (PER_SIZE,), generator=generator),
        )
        for size in sizes
    ]


def awake(model: nn.Module) -> nn.Module:
    """Batch norms as if trained, so that levels and resolutions matter."""
    if isinstance(model, ARRN):
        awaken_norms(model, torch.randn(8, 3, *model.grids[0]), 0)
        return model.eval()
    with torch.no_grad():
        model.train()
        for size in (8, 4):  # both sizes of a switchable network
            for _ in range(3):
                model(torch.randn(8, 3, size, size))
    return model.eval()


MODELS: dict[str, Callable[[], nn.Module]] = {
    "arrn": lambda: arrn.create_model("arrn", sizes=(16, 8, 4), features=(4, 6, 8), depth=1, num_classes=CLASSES),
    "approximate kernel": lambda: arrn.create_model(
        "arrn", sizes=(16, 8, 4), features=(4, 6, 8), depth=1, num_classes=CLASSES, kernel="poor"
    ),
    "fixed": lambda: arrn.create_model("resnet18_small_stem", size=16, width=4, num_classes=CLASSES),
    "switchable": lambda: arrn.create_model("resnet18_switchable", sizes=(16, 8), num_classes=CLASSES),
    "fourier": lambda: arrn.create_model(
        "fourier_operator", size=16, features=6, modes=3, depth=2, num_classes=CLASSES
    ),
}


def answer_alone(model: nn.Module, image: torch.Tensor, setting: Setting) -> int:
    """What the network says of one image, asked as a user would."""
    x = NORMALISATION(image[None])
    if setting.resolution is not None:
        x = lower(x, tuple(min(n, setting.resolution) for n in image.shape[1:]))
    if isinstance(model, ARRN):
        return int(model(x, adapt=bool(setting.adapt), policy=setting.policy).argmax())
    if max(x.shape[2:]) > 16 and type(model).__name__ == "FourierClassifier":
        x = resample(x, 16)
    return int(model(x).argmax())


@pytest.mark.parametrize(("kind", "batch_size"), [*((kind, 4) for kind in MODELS), ("arrn", 100)])
@torch.no_grad()
def test_counts_are_those_of_one_image_at_a_time(kind: str, batch_size: int) -> None:
    torch.manual_seed(3)
    model, buckets = awake(MODELS[kind]()), make_buckets(SIZES)
    settings = settings_for(model, [None, 16, 9, 4, 2])
    found = evaluate(model, MemoryBatches(buckets, batch_size, 0), settings, NORMALISATION)
    assert [answers.setting for answers in found] == settings
    for answers in found:
        alone = [answer_alone(model, image, answers.setting) for bucket in buckets for image in bucket.images]
        assert answers.predictions.tolist() == alone
        assert answers.labels.tolist() == torch.cat([bucket.labels for bucket in buckets]).tolist()
        assert answers.total == len(SIZES) * PER_SIZE
        assert answers.correct == sum(a == int(b) for a, b in zip(alone, answers.labels, strict=True))
    # The test has something to tell apart: resolutions change answers.
    assert len({tuple(answers.predictions.tolist()) for answers in found}) > 2


def test_batches_are_small_enough_for_the_samples_and_for_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["arrn"]()
    assert affordable_batch(256, [(8, 8)]) == affordable_batch(256, [(8, 8)], model) == 256
    needed = forward_memory(model, (1, 3, *model.grids[0]))
    monkeypatch.setattr("arrn.evaluation.accuracy._MEMORY", 10 * needed + 1)
    assert affordable_batch(256, [(8, 8)], model) == 10
    monkeypatch.setattr("arrn.evaluation.accuracy._MEMORY", needed - 1)
    assert affordable_batch(256, [(8, 8)], model) == 1
    assert affordable_batch(256, [(8, 8)], nn.Conv2d(3, 2, 1)) == 256  # any size, of which nothing is known


@pytest.mark.parametrize("kind", ["arrn", "fixed"])
def test_with_a_perfect_kernel_skipping_levels_changes_no_answer(kind: str) -> None:
    model = awake(MODELS[kind]())
    settings = settings_for(model, [None, 8, 5], policies=["exact"])
    found = {
        answers.setting: answers
        for answers in evaluate(model, MemoryBatches(make_buckets(SIZES), 8, 0), settings, NORMALISATION)
    }
    for setting, answers in found.items():
        if setting.adapt:
            full = found[dataclasses.replace(setting, adapt=False)]
            assert torch.equal(answers.predictions, full.predictions)


def test_samples_enter_on_the_grid_of_their_level() -> None:
    model = MODELS["arrn"]()
    batches = MemoryBatches(make_buckets(SIZES), 100, 0)
    exact, cheap, full = evaluate(
        model,
        batches,
        [Setting(None, True, "exact"), Setting(None, True, "cheap"), Setting(None, False)],
        NORMALISATION,
    )
    assert exact.grids[::PER_SIZE] == ((8, 8), (16, 16), (4, 4), (16, 16), (4, 4), (16, 16))
    assert cheap.grids[::PER_SIZE] == ((8, 8), (4, 4), (4, 4), (16, 16), (4, 4), (4, 4))
    assert set(full.grids) == {(16, 16)}
    by_grid = exact.by_grid()
    assert list(by_grid) == [(16, 16), (8, 8), (4, 4)]
    assert sum(total for _, total in by_grid.values()) == exact.total
    assert sum(correct for correct, _ in by_grid.values()) == exact.correct


def test_images_that_enter_on_one_grid_run_together() -> None:
    model = awake(MODELS["arrn"]())
    sizes: list[int] = []
    model.base.register_forward_hook(lambda module, inputs, output: sizes.append(len(inputs[0])))
    evaluate(model, MemoryBatches(make_buckets(SIZES), 1000, 0), [Setting(None, True, "exact")], NORMALISATION)
    assert sorted(sizes) == [PER_SIZE, 2 * PER_SIZE, 3 * PER_SIZE]


def test_running_every_level_is_done_once_whatever_the_policy() -> None:
    model = awake(MODELS["arrn"]())
    runs: list[int] = []
    model.base.register_forward_hook(lambda module, inputs, output: runs.append(1))
    settings = settings_for(model, [8], adapt=[False])
    one, two = evaluate(model, MemoryBatches(make_buckets([(16, 16)]), 100, 0), settings, NORMALISATION)
    assert len(runs) == 1
    assert (one.setting.policy, two.setting.policy) == ("exact", "cheap")
    assert torch.equal(one.predictions, two.predictions)


def test_samples_are_lowered_once_for_all_that_is_done_at_a_resolution(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, ...]] = []
    monkeypatch.setattr(
        "arrn.evaluation.accuracy.lower", lambda x, size, resampler: (made.append(size), lower(x, size, resampler))[1]
    )
    model = awake(MODELS["arrn"]())
    evaluate(model, MemoryBatches(make_buckets([(16, 16)]), 100, 0), settings_for(model, [None, 8, 4]), NORMALISATION)
    assert made == [(8, 8), (4, 4)]


def test_the_resampler_decides_how_lower_resolutions_are_made() -> None:
    model, seen = awake(MODELS["arrn"]()), []
    batches, found = MemoryBatches(make_buckets([(16, 16)]), 100, 0), {}
    for name in ("perfect", "bicubic", "area"):
        with pytest.MonkeyPatch.context() as patched:
            whole = model.forward
            patched.setattr(model, "forward", lambda x, whole=whole: (seen.append(x), whole(x))[1])
            evaluate(model, batches, [Setting(8, True, "exact")], NORMALISATION, name)
        found[name] = seen.pop()
    images = NORMALISATION(make_buckets([(16, 16)])[0].images)
    for name, x in found.items():
        torch.testing.assert_close(x, lower(images, (8, 8), name))


def test_it_tells_how_far_it_is_and_leaves_evaluation_mode_on() -> None:
    model, told = MODELS["arrn"]().train(), []
    evaluate(model, MemoryBatches(make_buckets(SIZES), 10, 0), [Setting()], NORMALISATION, progress=told.append)
    assert told == [10, 20, 30]
    assert not model.training


def answers_of(predictions: list[int], labels: list[int]) -> Answers:
    return Answers(Setting(), torch.tensor(predictions), torch.tensor(labels), ((8, 8),) * len(labels))


def test_balanced_accuracy_is_the_mean_over_the_classes_there_are() -> None:
    answers = answers_of([0, 0, 0, 0, 1, 3], [0, 0, 0, 0, 3, 3])
    assert answers.accuracy == pytest.approx(5 / 6)
    assert answers.balanced_accuracy == pytest.approx((1.0 + 0.5) / 2)
    assert answers_of([2, 2], [1, 0]).balanced_accuracy == 0.0


IMAGES = torch.randn(2, 3, 12, 18, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", ["perfect", "fair", "poor"])
def test_kernels_lower_by_name_and_by_their_options(name: str) -> None:
    assert torch.equal(lower(IMAGES, (5, 7), name), resample(IMAGES, (5, 7), name))
    custom = KaiserSinc(3, 5.0)
    assert torch.equal(lower(IMAGES, (5, 7), kernel_options(custom)), resample(IMAGES, (5, 7), custom))


def test_the_default_resampler_is_the_perfect_kernel() -> None:
    assert torch.equal(lower(IMAGES, (5, 7)), resample(IMAGES, (5, 7), "perfect"))


def test_bicubic_is_torchvisions_with_antialiasing() -> None:
    reference = tv.resize(IMAGES, [5, 7], InterpolationMode.BICUBIC, antialias=True)
    torch.testing.assert_close(lower(IMAGES, (5, 7), "bicubic"), reference)


def test_area_is_the_mean_of_what_a_cell_covers() -> None:
    by_hand = IMAGES.unfold(2, 3, 3).unfold(3, 2, 2).mean(dim=(-1, -2))
    torch.testing.assert_close(lower(IMAGES, (4, 9), "area"), by_hand)
    torch.testing.assert_close(lower(torch.arange(6.0).view(1, 1, 6), (3,), "area"), torch.tensor([[[0.5, 2.5, 4.5]]]))


@pytest.mark.parametrize("name", RESAMPLERS)
def test_the_same_size_is_left_as_it_is(name: str) -> None:
    assert lower(IMAGES, (12, 18), name) is IMAGES


@pytest.mark.parametrize("name", RESAMPLERS)
def test_constants_stay_constant(name: str) -> None:
    torch.testing.assert_close(lower(torch.full((1, 1, 10, 9), 3.0), (4, 6), name), torch.full((1, 1, 4, 6), 3.0))


def test_wrong_resamplers_are_refused() -> None:
    with pytest.raises(ArrnError, match="unknown resampler 'nearest'"):
        lower(IMAGES, (5, 7), "nearest")
    with pytest.raises(ArrnError, match="unknown resampler 'nearest'"):
        lower(IMAGES, (12, 18), "nearest")  # also where nothing is lowered
    with pytest.raises(ArrnError, match="a kernel's options need its name"):
        check_resampler({"sigma": 1.0}, 2)
    with pytest.raises(ArrnError, match="bicubic resampler is for images, got 1 axes of space; use 'area'"):
        lower(torch.zeros(1, 1, 8), (4,), "bicubic")
