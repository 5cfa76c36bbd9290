"""A training step: the reference path against each faster way, what augmentation adds, and networks by one recipe."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from arrn.benchmarks.floors import Ceilings, count_step, dtype_name
from arrn.benchmarks.measurement import Attempt, Fact, Measurement, measure
from arrn.benchmarks.settings import BenchmarkSettings
from arrn.benchmarks.ways import REFERENCE, StepWay, class_count, input_shape, step_ways
from arrn.data import Augmentation, Batch, Normalisation
from arrn.errors import ArrnError
from arrn.models import model_options
from arrn.nn import ARRN
from arrn.signal.grid import format_grid
from arrn.timing import rotating
from arrn.training import FRONTIER, PAPER_CIFAR, PAPER_LARGER_IMAGES, Recipe, TrainingStep
from arrn.training.step import dropout_for, order_memory

_ROTATION = 4
_STEPS = 10**6  # of the schedule: more than are ever taken


def benchmark_step(settings: BenchmarkSettings, ceilings: Ceilings) -> list[Measurement]:
    """Augmentation, forward, loss, backward and optimiser of the paper's recipe, random images, at the top size."""
    found = []
    ways = step_ways(settings.device, settings.compiled, adaptive=settings.takes("draw"))
    for batch in settings.batches_or(cuda=(128,), others=(16,)):
        attempts = [step_attempt(way, batch, settings) for way in ways]
        case, facts = step_case(batch, settings)
        found += [
            _with_rate(each, batch) for each in measure("step", case, attempts, settings, ceilings, facts, memory=True)
        ]
    return found


def benchmark_augmentation(settings: BenchmarkSettings, ceilings: Ceilings) -> list[Measurement]:
    """A step without TrivialAugmentWide, which is the reference, and with it; nothing for sound and volumes."""
    # By the fastest way: in a slow step, its cost would be a smaller part.
    way = step_ways(settings.device, compiled=False, adaptive=settings.takes("draw"))[-1]
    recipes = {
        REFERENCE: dataclasses.replace(PAPER_LARGER_IMAGES, trivial_augment=False),
        "with TrivialAugmentWide": PAPER_LARGER_IMAGES,
    }
    if len(input_shape(settings.build(), 1)) != 4:
        return []
    found = []
    for batch in settings.batches_or(cuda=(128,), others=(16,)):
        attempts = [step_attempt(way, batch, settings, recipe, name) for name, recipe in recipes.items()]
        case, facts = step_case(batch, settings)
        found += measure("augmentation", f"{case}, {way.name}", attempts, settings, ceilings, facts)
    return found


def benchmark_recipe(settings: BenchmarkSettings, ceilings: Ceilings) -> list[Measurement]:
    """A step of the recipe `frontier`, with the shares of its resolutions: the baselines, then the model.

    The first baseline is the reference. Nothing for a network that cannot have the recipe's shares.
    """
    model = settings.build()
    shape = input_shape(model, 1)
    top = max(shape[2:])
    shares = {top * resolution // FRONTIER.shares[0][0]: share for resolution, share in FRONTIER.shares}
    if len(shape) != 4 or len(shares) < len(FRONTIER.shares) or not _can_share(model, shares):
        return []
    adaptive = FRONTIER.with_options({"shares": shares})
    fixed = FRONTIER.with_options({"shares": shares, "resolutions": list(shares)})
    choices = {
        "size": top,
        "sizes": list(shares),
        "in_channels": shape[1],
        "num_classes": class_count(settings.build()),
    }
    found = []
    for batch in settings.batches_or(cuda=(512,), others=(16,)):
        attempts = []
        for name in dict.fromkeys([*settings.baselines, settings.model]):
            ours = name == settings.model
            known = model_options(name)
            options = settings.options if ours else {key: choices[key] for key in choices if key in known}
            network = dataclasses.replace(settings, model=name, options=options)
            way = step_ways(settings.device, compiled=False, adaptive=network.takes("draw"))[-1]
            each = step_attempt(way, batch, network, adaptive if network.takes("draw") else fixed, name)
            attempts.append(dataclasses.replace(each, work=None))  # the floors are those of a batch at one resolution
        case = f"batch {batch} at {format_grid(shape[2:])}, {FRONTIER.views} views"
        facts: dict[str, Fact] = {"model": settings.model, "batch": batch, "dtype": dtype_name(settings.dtype)}
        found += measure("recipe", case, attempts, settings, ceilings, facts, memory=True)
    return found


def _can_share(model: nn.Module, shares: dict[int, float]) -> bool:
    if not isinstance(model, ARRN):
        return True
    try:
        dropout_for(model, tuple(shares.items()))
    except ArrnError:
        return False
    return True


def step_case(batch: int, settings: BenchmarkSettings) -> tuple[str, dict[str, Fact]]:
    """The name of a step at that batch size, and what is known of it."""
    grid = format_grid(input_shape(settings.build(), batch)[2:])
    facts: dict[str, Fact] = {"model": settings.model, "batch": batch, "dtype": dtype_name(settings.dtype)}
    return f"{settings.model} at {grid}, batch {batch}", facts


def step_attempt(
    way: StepWay, batch: int, settings: BenchmarkSettings, recipe: Recipe = PAPER_CIFAR, name: str | None = None
) -> Attempt:
    """To take training steps of a recipe, in one of the ways, on a few random batches in turn."""
    options: dict[str, Any] = {"draw": way.draw} if settings.takes("draw") else {}
    model = settings.build(**options)
    work = count_step(model, input_shape(model, batch), settings.dtype)
    return Attempt(name or way.name, lambda: _prepare(way, batch, settings, recipe, options), work, way.kernels)


def _prepare(
    way: StepWay, batch: int, settings: BenchmarkSettings, recipe: Recipe, options: dict[str, Any]
) -> Callable[[], object]:
    if way.compiled:
        torch.compiler.reset()  # the network of another way must not count as a recompilation
    model = settings.build(**options)
    shape = input_shape(model, batch)
    order_memory(model.to(settings.device), ndim=len(shape) - 2).train()
    normalisation = Normalisation((0.5,) * shape[1], (0.25,) * shape[1])
    augmentation = Augmentation(normalisation, recipe.flip, recipe.crop_padding, recipe.trivial_augment, recipe.cutout)
    step = TrainingStep(model, augmentation, recipe, _STEPS, 0, compiled=way.compiled, captured=way.captured)
    numbers = itertools.count()
    batches = [_random_batch(shape, class_count(model), settings.device) for _ in range(_ROTATION)]
    return rotating(lambda images: step(images, next(numbers)), batches)


def _random_batch(shape: tuple[int, ...], classes: int, device: torch.device) -> Batch:
    images = torch.randint(0, 256, shape, dtype=torch.uint8, device=device)
    return Batch(images, torch.randint(0, classes, shape[:1], device=device))


def _with_rate(measured: Measurement, batch: int) -> Measurement:
    if measured.time is None:
        return measured
    return measured.noting(images_per_second=batch / measured.time.median)
