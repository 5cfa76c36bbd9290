"""The paper's experiments, the rivals it left out, and designs beyond it, as a list of runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from arrn.datasets import REPRODUCED, DatasetFacts, facts_of
from arrn.errors import unknown_name
from arrn.evaluation import default_resolutions
from arrn.experiments.results import EXPERIMENTS
from arrn.models import DESIGNS
from arrn.models.fixed import BASELINES
from arrn.models.transplanting import TRANSPLANTS
from arrn.runs.settings import RunSettings
from arrn.training import FRONTIER, recipe_for

# The order in which they are worth running: the first three tell most about the paper's claim.
_FIRST_BASELINES = ("resnet18", "mobilenet_v3_large", "efficientnet_v2_s")
_TIMED = ("robustness", "efficiency")
_RANDOM, _SWITCHABLE = "resnet18_small_stem-random-resolution", "resnet18_switchable"

# What tells most where there is not time for everything, as names or patterns; the other runs follow.
_FIRST = {
    "cifar100": ("arrn_cifar100", "arrn_cifar100-*", *_FIRST_BASELINES, _RANDOM, _SWITCHABLE),
    "tinyimagenet": (
        "arrn_tinyimagenet",
        "arrn_tinyimagenet-no-dropout",
        "resnet18",
        "mobilenet_v3_large",
        _RANDOM,
        "efficientnet_v2_s",
        _SWITCHABLE,
        "arrn_tinyimagenet-*",
    ),
    "imagenette96": ("resnet18", "arrn_stl10", "arrn_stl10-*", "mobilenet_v3_large", _RANDOM, _SWITCHABLE),
}

# Laplacian dropout's p of each transplant. The p of the designs is too large for them: with 0.65, ResNets lost five to
# six points at the highest resolution of CIFAR-10.
_TRANSPLANT_DROPOUT = dict.fromkeys(TRANSPLANTS, 0.3)

# Where the paper's 100 epochs take too long: a data set, runs by a name or a pattern, and their epochs.
_EPOCHS = (("tinyimagenet", "*", 40),)

_RESOLUTIONS_OF_SIZE = {
    96: (96, 80, 64, 48, 32, 24, 16, 12),
    224: (224, 160, 112, 80, 56, 40, 28),
}
_LARGE = 128  # from this size on, the stem that networks have for ImageNet suits the images


def check_reproduced(dataset: str) -> DatasetFacts:
    """The facts of a data set of the experiments.

    Raises:
        ArrnError: for a data set without experiments.
    """
    if dataset not in REPRODUCED:
        raise unknown_name("data set of the experiments", dataset, REPRODUCED)
    return facts_of(dataset)


def resolutions_for(size: int, dataset: str = "") -> tuple[int, ...]:
    """The resolutions at which networks for samples of `size` are evaluated, highest first. Some data sets have others.

    >>> resolutions_for(32)
    (32, 28, 24, 20, 16, 12, 8, 6, 4)
    """
    own = facts_of(dataset).resolutions
    return own or _RESOLUTIONS_OF_SIZE.get(size, default_resolutions(None, size))


@dataclass(frozen=True)
class PlannedRun:
    """A run of the experiments. Experiments that need the same network share its run.

    Attributes:
        name: the name of the run, unique among the runs on a data set.
        experiments: the experiments, of `EXPERIMENTS`, that use the run.
        model: the name of the network, as `arrn.create_model` takes it.
        options: the options of the network.
        recipe: the differences from the data set's recipe.
    """

    name: str
    experiments: tuple[str, ...]
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)


def settings_of(
    run: PlannedRun, dataset: str, seed: int = 0, data: str | None = None, epochs: int | None = None
) -> RunSettings:
    """The settings of a run of the plan.

    Args:
        run: a run of the plan.
        dataset: the name of the data set.
        seed: the seed of all random numbers.
        data: the root of the data set; None for its default place.
        epochs: another number of epochs than the recipe's. The share of epochs that warm up stays the same.

    >>> settings_of(plan("cifar10")[0], "cifar10", epochs=5).recipe.epochs
    5
    """
    recipe = recipe_for(dataset).with_options(run.recipe)
    if epochs is not None:
        recipe = recipe.with_options({"warm_up": recipe.warm_up * epochs / recipe.epochs, "epochs": epochs})
    return RunSettings(dataset, run.model, run.options, recipe, seed, data=data)


def plan(dataset: str) -> list[PlannedRun]:
    """Every run on a data set, the most informative runs first.

    >>> [run.name for run in plan("cifar10")][:3]
    ['arrn_cifar10', 'arrn_cifar10-no-dropout', 'resnet18']
    """
    chosen = check_reproduced(dataset)
    design = chosen.design
    if DESIGNS[design].ndim != 2:  # the other networks are for images
        return _adaptive(design, "perfect", ("robustness",))
    others = [name for name in BASELINES if name not in _FIRST_BASELINES]
    small = chosen.size < _LARGE
    runs = [
        *_adaptive(design, "perfect", (*_TIMED, "ablation")),
        *(_baseline(name) for name in _FIRST_BASELINES),
        *(_rivals(chosen.size) if small else [_random_resolution("resnet18", chosen.size)]),
        *_adaptive(design, "fair", ("ablation",)),
        *_adaptive(design, "poor", ("ablation",)),
        *(_baseline(name) for name in others),
        *map(_transplant, TRANSPLANTS),
    ]
    runs = [_shortened(run, dataset) for run in runs] + (_frontier(chosen.size) if small else [])
    return _in_order(runs, _FIRST.get(dataset, ()))


def _shortened(run: PlannedRun, dataset: str) -> PlannedRun:
    """The run with the epochs that `_EPOCHS` has for it."""
    for name, pattern, epochs in _EPOCHS:
        if name == dataset and fnmatchcase(run.name, pattern):
            return dataclasses.replace(run, recipe={**run.recipe, "epochs": epochs})
    return run


def _in_order(runs: Sequence[PlannedRun], first: Sequence[str]) -> list[PlannedRun]:
    """The runs, those of the names or patterns in `first` leading."""

    def place(run: PlannedRun) -> int:
        return next((n for n, pattern in enumerate(first) if fnmatchcase(run.name, pattern)), len(first))

    return sorted(runs, key=place)


def _adaptive(design: str, kernel: str, experiments: tuple[str, ...]) -> list[PlannedRun]:
    """The design with its own Laplacian dropout, and without."""
    name = design if kernel == "perfect" else f"{design}-{kernel}"
    return [
        PlannedRun(name, experiments, design, {"kernel": kernel}),
        PlannedRun(f"{name}-no-dropout", experiments, design, {"kernel": kernel, "dropout": 0.0}),
    ]


def _transplant(name: str) -> PlannedRun:
    return PlannedRun(f"arrn_{name}", ("generalization",), f"arrn_{name}", {"dropout": _TRANSPLANT_DROPOUT[name]})


def _baseline(name: str) -> PlannedRun:
    experiments = (*_TIMED, "generalization") if name in TRANSPLANTS else _TIMED
    return PlannedRun(name, experiments, name)


def _rivals(size: int) -> list[PlannedRun]:
    """What the paper did not compare with; all see the images at the same lower resolutions, if at any."""
    stem = "resnet18_small_stem"
    rivals = ("rivals",)
    # A specialist is trained, and native, at the images' own size, on images brought down to its resolution and up
    # again: the network of its rivals, at the cost of theirs. Natively at 8x8 its last stage would be one pixel.
    specialists = [
        PlannedRun(f"specialist-{part}", rivals, stem, recipe={"resolutions": [part]})
        for part in (size // 4, size // 2)
    ]
    return [
        PlannedRun(stem, rivals, stem),
        _random_resolution(stem, size),
        PlannedRun(_SWITCHABLE, rivals, _SWITCHABLE, {"sizes": _lower(size)}),
        PlannedRun("fourier_operator", rivals, "fourier_operator"),
        *specialists,
    ]


def _random_resolution(name: str, size: int) -> PlannedRun:
    return PlannedRun(f"{name}-random-resolution", ("rivals",), name, recipe={"resolutions": _lower(size)})


def _lower(size: int) -> list[int]:
    """The resolutions that rivals learn at, down to an eighth.

    >>> _lower(32)
    [32, 24, 16, 12, 8, 6, 4]
    """
    return [size * n // 16 for n in (16, 12, 8, 6, 4, 3, 2)]


def _frontier(size: int) -> list[PlannedRun]:
    """Designs for accuracy at little cost, and their rivals, all by one recipe.

    The widths of the switchable network cost as much as `arrn_medium` at the top (54), in the middle (64, the usual
    width) and at the base (96), and as `arrn_mini` at the top (18), in the middle (21) and at the base (32).
    """
    stem, switchable, ladder = "resnet18_small_stem", "resnet18_switchable", [size, size // 2, size // 4]
    shares = {size * resolution // 32: share for resolution, share in FRONTIER.shares}
    everywhere = dataclasses.asdict(FRONTIER) | {"shares": shares, "cutmix_from": size // 2}
    alone = everywhere | {"shares": {}, "cutmix_from": 1}

    def run(name: str, model: str, options: Mapping[str, Any], recipe: Mapping[str, Any]) -> PlannedRun:
        return PlannedRun(name, ("frontier",), model, options, recipe)

    def switched(name: str, width: int) -> PlannedRun:
        return run(name, switchable, {"sizes": list(shares), "width": width}, everywhere)

    return [
        run("arrn_medium", "arrn_medium", {"sizes": ladder}, everywhere),
        switched(f"{switchable}-frontier", 64),
        run("arrn_mini", "arrn_mini", {"sizes": ladder}, everywhere),
        *(switched(f"{switchable}-{width}-frontier", width) for width in (18, 21, 32, 54, 96)),
        run(f"{stem}-frontier", stem, {"size": size}, alone),
        run(f"{stem}-random-resolution-frontier", stem, {"size": size}, everywhere | {"resolutions": list(shares)}),
        *(run(f"native-{native}-frontier", stem, {"size": native}, alone) for native in ladder[1:]),
    ]


def choose(runs: Sequence[PlannedRun], experiment: str, only: Sequence[str] = ()) -> list[PlannedRun]:
    """The runs of one experiment, or of all experiments.

    Args:
        runs: the runs to choose from.
        experiment: one of `EXPERIMENTS`, or "all".
        only: names of runs, or patterns such as "specialist-*"; without any, every run is chosen.

    Raises:
        ArrnError: for an unknown experiment, and for a name or pattern that no run matches.
    """
    if experiment not in (*EXPERIMENTS, "all"):
        raise unknown_name("experiment", experiment, (*EXPERIMENTS, "all"))
    found = [run for run in runs if experiment in (*run.experiments, "all")]
    for pattern in only:
        if not any(fnmatchcase(run.name, pattern) for run in found):
            raise unknown_name(f"run of {experiment}:", pattern, (run.name for run in found))
    return [run for run in found if not only or any(fnmatchcase(run.name, pattern) for pattern in only)]
