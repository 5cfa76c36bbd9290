"""From what a training set looks like to a network and a recipe: rules, each with its reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from arrn.data import Form
from arrn.evaluation import is_uneven
from arrn.runs.batch_size import usual_batch
from arrn.runs.building import USUAL_DROPOUT
from arrn.signal.grid import Grid

# Of the levels from the top down, for each number of axes: channels, hidden channels per channel. Those of images are
# measured by docs/notes/first_runs/measure.py; those of sound and volumes are the shipped designs'.
_FEATURES = {1: (4, 4, 4, 8, 16, 24, 32, 48, 64, 64), 2: (16, 32, 64, 96, 128, 160), 3: (4, 8, 24, 48, 64, 64)}
_EXPANSION = {1: (4, 4, 4, 4, 4, 3, 3, 3, 3, 4), 2: (2, 3, 4, 4, 4, 4), 3: (1, 2, 3, 4, 4, 4)}
_LOWEST_BASE = {1: 40, 2: 4, 3: 4}  # the base has this many places along an axis, or up to twice as many
_HIGHEST_TOP = {1: 2**17, 2: 128, 3: 64}

_STEPS = 3000  # of a run
_EPOCHS = (10, 15, 20, 30, 40, 60, 80, 100)
_LEARNING_RATE = 2e-3
_HELD_OUT, _MOST_HELD_OUT = 0.15, 2000
_ENOUGH_TO_CHOOSE = 100  # held-out samples: with fewer, the best epoch is the luckiest
_STRETCHED = 1.5  # times, from which proportions matter
_FEW = 30  # samples of a class


@dataclass(frozen=True)
class Facts:
    """What a training set looks like.

    Attributes:
        form: of the samples.
        sizes: of each of them.
        class_counts: samples of each class, by its name.
        has_validation: whether the set has a validation split of its own.
        seconds: of each clip of sound, where they are known.
    """

    form: Form
    sizes: Sequence[Grid]
    class_counts: dict[str, int]
    has_validation: bool = False
    seconds: Sequence[float] = ()

    def __str__(self) -> str:
        unit = {1: "samples", 2: "px", 3: "voxels"}[self.form.ndim]
        sides: Sequence[float] = [max(size) for size in self.sizes]
        if self.seconds:  # every clip has as many samples, those of the window that it was looked at in
            unit, sides = "s", self.seconds
        low, high = f"{min(sides):.5g}", f"{max(sides):.5g}"
        spread = f"from {low} to {high} {unit}" if low != high else f"of {high} {unit}"
        return f"{len(self.sizes):,} {self.form.words} {spread}"


@dataclass(frozen=True)
class Proposal:
    """What to train, and why.

    Attributes:
        options: of the model ``"arrn"``.
        recipe: options of the recipe.
        settings: other settings of the run.
        reasons: a line each.
    """

    options: dict[str, Any]
    recipe: dict[str, Any]
    settings: dict[str, Any]
    reasons: tuple[str, ...]


def ladder_for(top: int, ndim: int) -> list[int]:
    """Sizes that halve from about `top` down to the base; two at least.

    >>> ladder_for(133, 2), ladder_for(36, 2), ladder_for(14, 2), ladder_for(8000, 1)[-3:]
    ([128, 64, 32, 16, 8, 4], [32, 16, 8, 4], [14, 7], [250, 125, 62])
    """
    top = max(4, min(top, _HIGHEST_TOP[ndim]))
    lowest = _LOWEST_BASE[ndim] if top >= 2 * _LOWEST_BASE[ndim] else 2
    halvings = min(int(math.log2(top / lowest)), len(_FEATURES[ndim]) - 1)
    if ndim == 1:  # a window keeps its length: its levels need not be halves exactly
        return [round(top / 2**n) for n in range(halvings + 1)]
    base = top >> halvings
    return [base << n for n in range(halvings, -1, -1)]


def options_for(sizes: Sequence[int], ndim: int) -> dict[str, Any]:
    """The options of the generic builder for a ladder."""
    features, expansion = _FEATURES[ndim], _EXPANSION[ndim]
    count = len(sizes)
    if ndim == 1:  # long lines are what costs: the widths belong to the low levels
        features, expansion = features[-count:], expansion[-count:]
    return {
        "sizes": list(sizes),
        "features": list(features[:count]),
        "expansion": list(expansion[:count]),
        "depth": [*[1] * (count - 1), 2],
        "dropout": USUAL_DROPOUT,
    }


def propose(facts: Facts) -> Proposal:
    """A network and a recipe for a training set."""
    ndim, count = facts.form.ndim, len(facts.sizes)
    reasons: list[str] = []
    settings: dict[str, Any] = {}
    sides = sorted(map(max, facts.sizes))
    usual = sides[min(count - 1, int(0.8 * count))]
    if ndim == 1:
        seconds, usual = _window(facts, usual)
        if seconds is not None:
            settings["window"] = seconds
            reasons.append(f"window {seconds:g} s: nine in ten clips are at most this long")
    sizes = ladder_for(usual, ndim)
    reasons.append(
        f"ladder {' -> '.join(map(str, sizes))}: four in five {facts.form.words} are at most {usual} along their "
        f"longer side{_capped(usual, ndim)}, and each level has half the size of the level above, down to a cheap base"
    )
    reasons.append(
        f"dropout {USUAL_DROPOUT:g}: the network also learns lower resolutions, and loses little accuracy at the full "
        "resolution"
    )
    held_out = 0 if facts.has_validation else _held_out(facts)
    left = count - held_out
    batch = usual_batch(left)
    epochs = min(_EPOCHS, key=lambda n: abs(math.log(n * max(1, left // batch) / _STEPS)))
    reasons.append(
        f"{epochs} epochs: about {epochs * -(-left // batch):,} steps; small networks need thousands of steps"
    )
    recipe: dict[str, Any] = {"epochs": epochs, "batch_size": "auto", "learning_rate": _LEARNING_RATE}
    if ndim == 1:
        recipe["flip"] = False
    if held_out:
        settings["holdout"] = held_out
        reasons.append(f"holdout {held_out}: to measure the accuracy of each class on samples that are not trained on")
    if held_out >= _ENOUGH_TO_CHOOSE:
        settings["keep"] = "best"
        reasons.append(f"keep best: {held_out} samples are enough to choose the best epoch by its accuracy")
    if ndim > 1 and _is_stretched(facts.sizes):
        settings["aspect"] = "pad"
        reasons.append(f"aspect pad: many {facts.form.words} are far from square, and stretching would distort them")
    reasons += _of_classes(facts, chooses="keep" in settings)
    return Proposal(options_for(sizes, ndim), recipe, settings, tuple(reasons))


def _capped(usual: int, ndim: int) -> str:
    most = _HIGHEST_TOP[ndim]
    return f" (the ladder begins at {most}, since larger grids train slowly)" if usual > most else ""


def _window(facts: Facts, samples: int) -> tuple[float | None, int]:
    """A window that most clips fit in, where their lengths are known, and its samples at the set's rate."""
    if not facts.seconds:
        return None, samples
    longest = sorted(facts.seconds)[int(0.9 * (len(facts.seconds) - 1))]
    seconds = min(5.0, max(0.1, math.ceil(10 * longest) / 10))
    return seconds, max(2, round(samples * seconds))  # as it was looked at, the window was a second


def _held_out(facts: Facts) -> int:
    """A share of the samples, of which every class keeps most."""
    count, classes = len(facts.sizes), len(facts.class_counts)
    return max(0, min(round(_HELD_OUT * count), _MOST_HELD_OUT, count - 2 * classes))


def _is_stretched(sizes: Sequence[Grid]) -> bool:
    far = sum(max(size) >= _STRETCHED * min(size) for size in sizes)
    return far > len(sizes) / 4


def _of_classes(facts: Facts, chooses: bool) -> list[str]:
    """What uneven and small classes mean for the result, and for the choice of the best epoch."""
    counts = facts.class_counts
    least, most = min(counts, key=lambda name: counts[name]), max(counts, key=lambda name: counts[name])
    lines = []
    if is_uneven(counts.values()):
        chosen = "; the best epoch is chosen by this accuracy" if chooses else ""
        lines.append(
            f"classes are uneven, {counts[least]} of {least!r} and {counts[most]} of {most!r}: look at the balanced "
            f"accuracy, in which every class has the same weight{chosen}"
        )
    if counts[least] < _FEW:
        lines.append(f"{least!r} has {counts[least]} samples: more samples would help more than any setting")
    return lines
