"""One training step: what it computes, what it counts, what it depends on."""

import copy

import pytest
import torch
from torch import nn

import arrn
from arrn.data import Augmentation, Batch, Normalisation
from arrn.data.epochs import derive_seed
from arrn.errors import ArrnError
from arrn.training import Recipe, TrainingStep
from arrn.training.checkpoints import restore_state, state_tensors
from arrn.training.step import autocast_for, order_memory
from small_runs import TINY

PLAIN = Recipe(flip=False, crop_padding=0.0, optimizer="sgd", momentum=0.0, weight_decay=0.0, learning_rate=0.1)


def tiny(dropout: float = 0.0, **options: object) -> nn.Module:
    torch.manual_seed(1)
    return arrn.create_model("arrn", num_classes=3, dropout=dropout, **TINY, **options)


def batch(count: int = 6) -> Batch:
    return Batch(torch.randint(0, 256, (count, 3, 8, 8), dtype=torch.uint8), torch.arange(count) % 3)


def step_of(model: nn.Module, recipe: Recipe, seed: int = 0, steps: int = 10) -> TrainingStep:
    normalisation = Normalisation((0.5,) * 3, (0.25,) * 3)
    return TrainingStep(model, Augmentation(normalisation, recipe.flip, recipe.crop_padding), recipe, steps, seed)


def test_a_step_is_gradient_descent_on_the_mean_cross_entropy() -> None:
    model = tiny(head_dropout=0.0)
    reference, images = copy.deepcopy(model), batch()
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    logits = reference((images.images / 255 - 0.5) / 0.25)
    loss = nn.functional.cross_entropy(logits, images.labels)
    torch.autograd.backward(loss)
    optimizer.step()
    step = step_of(model, PLAIN)
    step(images, 0)
    for mine, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
    total, correct, seen = step.totals
    assert total == pytest.approx(6 * float(loss.detach()), rel=1e-5)
    assert (correct, seen) == (int((logits.argmax(1) == images.labels).sum()), 6)


def test_options_that_are_off_leave_a_step_as_it_was_to_the_bit() -> None:
    model = tiny(dropout=0.5)
    reference, images = copy.deepcopy(model), batch()
    step = step_of(model, PLAIN)
    step(images, 0)
    assert step.result is model
    state = torch.get_rng_state()
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1, fused=True)
    torch.manual_seed(derive_seed(0, "step", 0))
    pixels = Augmentation(Normalisation((0.5,) * 3, (0.25,) * 3), False, 0.0)(images.images)
    loss = nn.functional.cross_entropy(reference(pixels), images.labels, reduction="sum")
    torch.autograd.backward(loss / 6)
    optimizer.step()
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), reference.parameters(), strict=True))


def test_label_smoothing_is_a_mixture_with_the_mean_over_classes() -> None:
    totals = []
    for smoothing in (0.0, 0.3):
        step = step_of(tiny(head_dropout=0.0), PLAIN.with_options({"label_smoothing": smoothing}))
        torch.manual_seed(3)
        step(batch(), 0)
        totals.append(step.totals[0])
    model = tiny(head_dropout=0.0)
    torch.manual_seed(3)
    logits = model((batch().images / 255 - 0.5) / 0.25)
    even = -logits.log_softmax(dim=1).mean(dim=1).sum().detach()
    assert totals[1] == pytest.approx(0.7 * totals[0] + 0.3 * float(even), rel=1e-5)


def test_the_average_of_the_weights_is_a_moving_one_that_begins_quickly() -> None:
    model, images = tiny(), batch()
    step = step_of(model, PLAIN.with_options({"weight_averaging": 0.2}))
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for number, kept in enumerate((0.1, 2 / 11, 0.2)):
        step(images, number)
        for name, tensor in model.state_dict().items():
            expected[name] = kept * expected[name] + (1 - kept) * tensor if tensor.is_floating_point() else tensor
    assert step.result is not model
    assert step.result.config == model.config
    for name, tensor in step.result.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-5, atol=1e-6)
    assert any("running_mean" in name for name in expected)


def test_averaging_leaves_the_training_itself_as_it_is() -> None:
    models = []
    for decay in (0.0, 0.9):
        model, images = tiny(dropout=0.5), Batch(torch.full((6, 3, 8, 8), 7, dtype=torch.uint8), torch.arange(6) % 3)
        step = step_of(model, Recipe(weight_averaging=decay))
        step(images, 0)
        step(images, 1)
        models.append(model)
    assert all(torch.equal(a, b) for a, b in zip(*(m.state_dict().values() for m in models), strict=True))


def test_an_average_is_checkpointed_and_one_that_is_missing_is_an_error() -> None:
    recipe, images = Recipe(weight_averaging=0.9), batch()
    first, second = (step_of(tiny(), recipe) for _ in range(2))
    first(images, 0)
    saved = {name: tensor.clone() for name, tensor in state_tensors(first).items()}
    restore_state(second, saved)
    for step in (first, second):
        step(images, 1)
    ends = zip(state_tensors(first).values(), state_tensors(second).values(), strict=True)
    assert all(torch.equal(a, b) for a, b in ends)
    without = {name: tensor for name, tensor in saved.items() if not name.startswith("average.")}
    restore_state(step_of(tiny(), Recipe()), without)
    with pytest.raises(ArrnError, match="it holds no average of the weights"):
        restore_state(second, without)


def test_totals_add_up_and_start_again() -> None:
    step = step_of(tiny(), PLAIN)
    step(batch(4), 0)
    first = step.totals
    step(batch(6), 1)
    assert step.totals[0] > first[0]
    assert step.totals[2] == 10
    step.reset()
    assert step.totals == (0.0, 0, 0)
    step.reset(1.5, 2, 3)
    assert step.totals == (1.5, 2, 3)


def weights_after(seed: int, number: int, noise: int = 0) -> torch.Tensor:
    """One step with everything random in it; `noise` is what was drawn before."""
    model, images = tiny(dropout=0.5), batch()
    torch.manual_seed(noise)
    step_of(model, Recipe(), seed)(images, number)
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_randomness_depends_on_the_seed_and_the_steps_number_alone() -> None:
    assert torch.equal(weights_after(0, 3), weights_after(0, 3, noise=9))
    assert not torch.equal(weights_after(0, 3), weights_after(1, 3))
    assert not torch.equal(weights_after(0, 3), weights_after(0, 4))


def test_the_learning_rate_follows_the_schedule() -> None:
    step = step_of(tiny(), Recipe(learning_rate=1.0, final_learning_rate=0.5), steps=3)
    rates = []
    for number in range(3):
        step(batch(), number)
        rates.append(step.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([1.0, 0.75, 0.5])


def test_bfloat16_is_for_gpus_unless_asked_for() -> None:
    seen: list[torch.dtype] = []
    for precision in ("auto", "float32", "bfloat16"):
        with autocast_for(Recipe(precision=precision), torch.device("cpu"))():  # type: ignore[arg-type]
            seen.append(nn.Linear(2, 2)(torch.ones(1, 2)).dtype)
    assert seen == [torch.float32, torch.float32, torch.bfloat16]
    with pytest.raises(ArrnError, match="on mps use 'float32'"):
        autocast_for(Recipe(precision="bfloat16"), torch.device("mps"))


def test_a_bfloat16_step_keeps_float32_weights() -> None:
    model = tiny()
    step_of(model, Recipe(precision="bfloat16"))(batch(), 0)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())


def test_weights_are_in_the_order_that_suits_the_axes() -> None:
    flat = order_memory(nn.Conv2d(4, 4, 3), 2)
    assert flat.weight.is_contiguous(memory_format=torch.channels_last)
    assert order_memory(nn.Conv3d(4, 4, 3), 3).weight.is_contiguous(memory_format=torch.channels_last_3d)
    assert order_memory(nn.Conv1d(4, 4, 3), 1).weight.is_contiguous()
    # Five axes, none of them a convolution's.
    spectral = order_memory(arrn.create_model("fourier_operator", features=4, modes=2, depth=1), 2)
    assert all(parameter.ndim != 4 or parameter.is_contiguous() for parameter in spectral.parameters())


def test_a_batch_too_small_for_a_batch_norm_is_an_error_that_says_so() -> None:
    model = arrn.create_model("resnet18_switchable", sizes=(8, 4), num_classes=3)
    step = step_of(model, PLAIN.with_options({"resolutions": [8, 4]}))
    with pytest.raises(ArrnError, match=r"a batch of 1 image.* at 8 is too few .*batch_size"):
        step(batch(2), 0)


def test_two_views_of_a_sample_that_nothing_changes_are_one() -> None:
    once, twice = (tiny(head_dropout=0.0) for _ in range(2))
    images = batch()
    first, second = step_of(once, PLAIN), step_of(twice, PLAIN.with_options({"views": 2}))
    first(images, 0)
    second(images, 0)
    for one, two in zip(once.parameters(), twice.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)
    assert second.totals[0] == pytest.approx(2 * first.totals[0], rel=1e-4)
    assert second.totals[1:] == (2 * first.totals[1], 12)


def test_views_are_changed_apart() -> None:
    model = tiny()
    seen: list[torch.Tensor] = []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    recipe = PLAIN.with_options({"views": 3, "crop_padding": 0.5})
    step_of(model, recipe)(batch(), 0)
    views = seen[0].reshape(3, 6, -1)
    assert not any(torch.equal(views[a], views[b]) for a, b in ((0, 1), (0, 2), (1, 2)))


def test_cutmix_leaves_samples_at_low_resolutions_whole() -> None:
    """The first samples of a batch keep the most levels, so they are the ones that are mixed."""
    model = tiny(dropout=0.5)
    seen: list[torch.Tensor] = []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    recipe = PLAIN.with_options({"cutmix": 1.0, "cutmix_from": 8, "shares": {8: 0.25, 4: 0.75}})
    images, plain = batch(40), Normalisation((0.5,) * 3, (0.25,) * 3)
    step = step_of(model, recipe)
    step(images, 0)
    whole = (seen[0] == plain(images.images)).flatten(1).all(dim=1)
    assert whole[10:].all()
    assert int(whole[:10].sum()) < 4  # a box may miss
    survivors = model.dropout(40, 1, torch.device("cpu"))
    assert survivors is not None
    assert survivors.order is None
    assert survivors.levels == (10,)
    total, _, seen_samples = step.totals
    assert 0 < total < 40 * 10
    assert seen_samples == 40


def test_cutmix_needs_a_network_that_knows_its_classes() -> None:
    with pytest.raises(ArrnError, match="cutmix mixes targets, so the network must tell how many classes"):
        step_of(nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), PLAIN.with_options({"cutmix": 0.5}))


@pytest.mark.parametrize("name", ["arrn", "resnet18_small_stem", "resnet18_switchable"])
def test_distillation_asks_later_views_for_the_first_views_prediction(name: str) -> None:
    """The loss against its formula, one sample after the other, for networks that stack, reorder or gate a batch."""
    torch.manual_seed(1)
    if name == "arrn":
        model, batches = tiny(dropout=0.5, head_dropout=0.0), {}
    else:
        sizes = {"sizes": (8, 4)} if name == "resnet18_switchable" else {"size": 8, "width": 4}
        model, batches = arrn.create_model(name, num_classes=3, **sizes), {"resolutions": [8, 4]}
    answers: list[torch.Tensor] = []
    model.register_forward_hook(lambda _, __, logits: answers.append(logits.detach().double()))
    options = {"views": 2, "distillation": 0.3, "shares": {8: 0.5, 4: 0.5}, "crop_padding": 0.5, **batches}
    step, images = step_of(model, PLAIN.with_options(options)), batch(4)
    step(images, 0)
    high, low = torch.cat(answers).chunk(2)
    expected = 0.0
    for teacher, student, label in zip(high, low, images.labels, strict=True):
        soft, wanted = (student / 2).softmax(0), (teacher / 2).softmax(0)
        apart = float((wanted * (wanted / soft).log()).sum()) * 4
        expected += float(-teacher.log_softmax(0)[label] - 0.7 * student.log_softmax(0)[label]) + 0.3 * apart
    assert step.totals[0] == pytest.approx(expected, rel=1e-4)
    assert step.totals[2] == 8


def test_views_of_distillation_are_changed_and_mixed_alike() -> None:
    model, seen = tiny(), []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    step = step_of(model, PLAIN.with_options({"views": 2, "distillation": 1.0, "cutmix": 1.0, "crop_padding": 0.5}))
    step(batch(), 0)
    first, second = seen[0].chunk(2)
    assert torch.equal(first, second)
    assert step.totals[0] > 0
