"""What TrivialAugmentWide adds to a training step of the recipe that has it."""

from __future__ import annotations

import dataclasses

from arrn.benchmarks.ceilings import Ceilings
from arrn.benchmarks.measurement import Measurement
from arrn.benchmarks.measuring import measure
from arrn.benchmarks.networks import input_shape
from arrn.benchmarks.settings import BenchmarkSettings
from arrn.benchmarks.step import step_attempt, step_case
from arrn.benchmarks.ways import REFERENCE, step_ways
from arrn.training import PAPER_LARGER_IMAGES

__all__ = ["benchmark_augmentation"]


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
