"""Advice for a folder: what to train on it, what that will cost, and why; taken by `arrn train FOLDER`."""

from __future__ import annotations

import copy
import dataclasses
import math
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from arrn.data import (
    Augmentation,
    BadSample,
    Normalisation,
    NpzArrays,
    Placement,
    aspect_in_words,
    clip_seconds,
    frame,
    stored_bytes,
)
from arrn.memory import free_memory
from arrn.nn.network import entry_grid, entry_kernel
from arrn.runs.batch_size import choose_batch, usual_batch
from arrn.runs.building import aspect_for, build_network
from arrn.runs.device import pick_device
from arrn.runs.proposing import Facts, options_for, propose
from arrn.runs.settings import RunSettings
from arrn.runs.splits import RunData, open_run_data
from arrn.runs.trial_step import try_steps
from arrn.runtime.aspect import Aspect
from arrn.signal.grid import as_ladder, format_grid
from arrn.training import TrainingStep
from arrn.training.step import order_memory

_PATIENT = 300.0  # seconds of an epoch on a CPU, from which a level too many is taken off
_LOWEST_TOP = {1: 1000, 2: 48, 3: 28}
_FORWARD = 0.35  # of a training step, that answering takes


@dataclass(frozen=True)
class Advice:
    """What to train on a folder.

    Attributes:
        settings: of the run.
        facts: what the training set looks like, in words.
        seconds: that an epoch will take, about.
        memory: bytes that a step will take, about; 0 where that cannot be measured.
        reasons: why, a line each.
        bad: the samples that could not be read, and were left out.
    """

    settings: RunSettings
    facts: str
    seconds: float
    memory: float
    reasons: tuple[str, ...]
    bad: tuple[BadSample, ...] = ()

    def __str__(self) -> str:
        sizes = " -> ".join(str(n) if isinstance(n, int) else format_grid(n) for n in self.settings.options["sizes"])
        batch = self.settings.recipe.batch_size
        return f"{self.facts}: arrn with {sizes}, batch {batch}, about {spell_seconds(self.seconds)} an epoch"

    @property
    def command(self) -> str:
        """What to type to have just this."""
        settings, recipe = self.settings, self.settings.recipe
        words = ["arrn", "train", settings.dataset, "--model", settings.model]
        for name, value in settings.options.items():
            text = str(value).replace(" ", "")
            words += ["--dropout", text] if name == "dropout" else ["--option", f"{name}={text}"]
        words += ["--epochs", str(recipe.epochs), "--batch-size", str(recipe.batch_size)]
        words += ["--learning-rate", f"{recipe.learning_rate:g}"]
        if settings.holdout:
            words += ["--holdout", str(settings.holdout)]
        words += ["--keep", settings.keep] if settings.keep != "last" else []
        words += ["--aspect", settings.aspect] if settings.aspect != "stretch" else []
        words += ["--window", f"{settings.window:g}"] if settings.window != 1.0 else []
        words += [] if settings.sample_rate is None else ["--sample-rate", str(settings.sample_rate)]
        words += [] if settings.data is None else ["--data", settings.data]
        words += ["--skip-bad"] if self.bad else []
        return shlex.join(words)


def spell_seconds(seconds: float) -> str:
    """A time in words, about.

    >>> spell_seconds(0.42), spell_seconds(41.7), spell_seconds(600)
    ('0.4 s', '42 s', '10 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def advise(
    settings: RunSettings,
    *,
    options: Mapping[str, Any] | None = None,
    recipe: Mapping[str, Any] | None = None,
    given: Mapping[str, Any] | None = None,
    device: str = "auto",
    max_pixels: int | None = None,
) -> Advice:
    """Looks at a training set and at what a step of a network for it costs on this machine.

    Args:
        settings: which data set, how it is read; what else they say is a start, which is advised on.
        options, recipe, given: of the model, the recipe and the settings, what the user has decided.
        device: where it will be trained.
        max_pixels: of an image, or voxels of a volume; more are refused. None is 64 million.

    Raises:
        ArrnError: for a set that cannot be read, or for which nothing fits the memory.
    """
    place = pick_device(device)
    data = open_run_data(dataclasses.replace(settings, holdout=0, keep="last"), max_pixels=max_pixels)
    facts = _look(data, settings)
    axes = facts.form.ndim
    proposal = propose(facts)
    chosen = dict(given or {})
    held = {name: value for name, value in proposal.settings.items() if name not in chosen}
    if chosen.get("holdout") == 0 and not facts.has_validation:
        held.pop("keep", None)
    settings = dataclasses.replace(settings, model="arrn", **held, **chosen)
    if "window" in held:  # samples have other lengths then
        data = open_run_data(dataclasses.replace(settings, holdout=0, keep="last"), max_pixels=max_pixels)
    taken, reasons = dict(proposal.options) | dict(options or {}), list(proposal.reasons)
    plan = proposal.recipe | dict(recipe or {})
    while True:
        tried = dataclasses.replace(settings, options=taken, recipe=settings.recipe.with_options(plan))
        cost = _cost(tried, data, place)
        shorter = [] if "sizes" in (options or {}) else list(taken["sizes"][1:])
        lower = bool(shorter) and shorter[0] >= _LOWEST_TOP[axes]
        if not (lower and place.type == "cpu" and cost.seconds > _PATIENT):
            break
        reasons.append(
            f"no level at {taken['sizes'][0]}: with this level, an epoch would take {spell_seconds(cost.seconds)} on "
            "this machine"
        )
        taken = options_for(shorter, axes) | dict(options or {})
    fitting = Aspect(settings.aspect, as_ladder(taken["sizes"], axes)[0])
    if axes > 1 and (line := aspect_in_words(data.train, fitting)) is not None:
        reasons.append(line)
    if cost.said:
        reasons.append(cost.said)
    final = dataclasses.replace(tried, recipe=tried.recipe.with_options({"batch_size": cost.batch}))
    if axes == 2 and not settings.skip_bad and not isinstance(data.dataset.train, NpzArrays):
        reasons.append(
            "only the header of each image was read: an image that is cut short is named by the training, or here with "
            "--skip-bad, which decodes all images"
        )
    whole = final.recipe.epochs * cost.seconds
    reasons.append(f"{final.recipe.epochs} epochs take about {spell_seconds(whole)} in all, on the {place.type}")
    return Advice(final, str(facts), cost.seconds, cost.memory, tuple(reasons), data.bad)


def _look(data: RunData, settings: RunSettings) -> Facts:
    names, labels = data.dataset.class_names, data.train.source.labels
    counts = torch.bincount(labels, minlength=len(names)).tolist()
    form = data.train.source.form
    seconds = clip_seconds(data.train.source) if form.ndim == 1 and settings.window == 1.0 else []
    has_validation = data.validation is not None
    return Facts(form, data.train.sizes, dict(zip(names, counts, strict=True)), has_validation, seconds)


@dataclass(frozen=True)
class _Cost:
    batch: int
    seconds: float
    memory: float
    said: str


def _cost(settings: RunSettings, data: RunData, device: torch.device) -> _Cost:
    """A batch that fits, and what an epoch takes: trial steps on every grid on which samples enter."""
    model, recipe = build_network(settings, data.train, lambda text: None)
    form = data.train.source.form
    order_memory(model.to(device), form.ndim)
    train = frame(data.train, aspect_for(model, settings.aspect, form.ndim), settings.skip_bad)
    placement = Placement.by(lambda size: entry_grid(model, size), train.sizes, entry_kernel(model))
    counts = Counter(placement.targets[size] for size in train.sizes)
    plain = Normalisation((0.5,) * form.channels, (0.5,) * form.channels)

    def make_step(network: torch.nn.Module) -> TrainingStep:
        changes = Augmentation(plain, recipe.flip, recipe.crop_padding, recipe.trivial_augment, recipe.cutout)
        return TrainingStep(network, changes, recipe, 1, settings.seed)

    measurable = device.type in ("cpu", "cuda")
    free = free_memory(device) - min(stored_bytes(train, placement), free_memory(device) / 2) if measurable else 2.0**33
    samples = len(train.sizes) - settings.holdout
    said: list[str] = []
    batch = recipe.batch_size
    most = usual_batch(samples) if batch == "auto" else batch  # small steps take longer, sample by sample
    costs = {
        grid: try_steps(copy.deepcopy(model), make_step, form, grid, free=free, most=min(count, most), timed=True)
        for grid, count in counts.items()
    }
    largest = costs[max(counts, key=math.prod)]
    if batch == "auto":
        batch = choose_batch(largest if measurable else None, free, samples, said.append)
    seconds = sum(count * costs[grid].seconds for grid, count in counts.items())
    share = samples / len(train.sizes)
    held_out = settings.holdout or (len(data.validation.sizes) if data.validation is not None else 0)
    each = seconds / len(train.sizes)
    memory = largest.memory(batch) if measurable else 0.0
    return _Cost(batch, seconds * share + _FORWARD * held_out * each, memory, "".join(said))
