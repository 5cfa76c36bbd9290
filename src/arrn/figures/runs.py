"""Results as figures see them: the seeds of a run together, runs in order, each with its name and look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import fmean
from typing import Literal

from arrn.datasets import REPRODUCED
from arrn.errors import ArrnError
from arrn.experiments import Result
from arrn.experiments.jobs import differences_from
from arrn.experiments.plan import plan, settings_of
from arrn.figures.curves import ARCHITECTURES, FRONTIER_DESIGNS, Curve, Point
from arrn.models.transplanting import TRANSPLANTS

_USUAL_WIDTH = 64  # channels of a ResNet18's first stage


@dataclass(frozen=True)
class Run:
    """One run of the plan on one data set, with all of its seeds, lowest first."""

    results: tuple[Result, ...]

    @property
    def name(self) -> str:
        """Of the run in the plan."""
        return self.first.name

    @property
    def first(self) -> Result:
        """The result of the lowest seed; it tells what all seeds have in common."""
        return self.results[0]

    def in_any(self, *experiments: str) -> bool:
        """Whether it belongs to any of the experiments."""
        return any(name in result.experiments for name in experiments for result in self.results)

    def points(self, adapt: bool = True) -> tuple[Point, ...]:
        """Accuracy at the resolutions that all seeds have, lowest first.

        The mean of its seeds; the interval is the smallest that holds the Wilson interval of each.
        """
        seeds = [{point["resolution"]: point for point in result.points(adapt)} for result in self.results]
        found = []
        for size in seeds[0]:
            if all(size in seed for seed in seeds):
                lows, highs = zip(*(seed[size]["interval"] for seed in seeds), strict=True)
                found.append(Point(size, fmean(seed[size]["accuracy"] for seed in seeds), min(lows), max(highs)))
        return tuple(found)


def group_runs(results: Iterable[Result]) -> dict[str, list[Run]]:
    """The runs of each data set, by name.

    Raises:
        ArrnError: for seeds of a run that differ in more than the seed, whose mean would mean nothing.
    """
    found: dict[tuple[str, str], list[Result]] = {}
    for result in sorted(results, key=lambda result: (result.dataset, result.name, result.seed)):
        found.setdefault((result.dataset, result.name), []).append(result)
    datasets: dict[str, list[Run]] = {}
    for (dataset, name), seeds in found.items():
        for result in seeds[1:]:
            if (result.full_recipe, result.model) != (seeds[0].full_recipe, seeds[0].model):
                raise ArrnError(
                    f"{name} on {dataset}: seeds {seeds[0].seed} and {result.seed} differ in model or recipe "
                    f"({seeds[0].epochs} and {result.epochs} epochs); keep results of one kind in a folder"
                )
        datasets.setdefault(dataset, []).append(Run(tuple(seeds)))
    return datasets


def describe(runs: Sequence[Run], bands: bool = True) -> str:
    """What the runs have in common, for a title: data set, split, epochs, seeds, and that there are bands."""
    dataset, split = runs[0].first.dataset, runs[0].first.split
    epochs = {run.first.epochs for run in runs}
    seeds = {len(run.results) for run in runs}
    trained = f"trained for {_span(epochs)} {'epoch' if epochs == {1} else 'epochs'}"
    how_many = "one seed" if seeds == {1} else f"{_span(seeds)} seeds"
    return f"{dataset}, {split} split; {trained}, {how_many} each" + (" (bands: 95% intervals)" if bands else "")


def _span(numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def missing_runs(dataset: str, runs: Iterable[Run], *experiments: str) -> tuple[str, ...]:
    """The names of planned runs, of some experiments or of all, that have no result yet; none without a plan."""
    there = {run.name for run in runs}
    planned = plan(dataset) if dataset in REPRODUCED else []
    wanted = [run for run in planned if not experiments or set(experiments) & set(run.experiments)]
    return tuple(run.name for run in wanted if run.name not in there)


def outdated_runs(dataset: str, runs: Iterable[Run]) -> dict[str, list[str]]:
    """Runs with other settings than the plan has for them now, and how these differ, in words."""
    planned = {run.name: run for run in plan(dataset)} if dataset in REPRODUCED else {}
    known = [run for run in runs if run.name in planned]
    found = {run.name: differences_from(run.first, settings_of(planned[run.name], dataset)) for run in known}
    return {name: differences for name, differences in found.items() if differences}


def with_own_kernel(runs: Iterable[Run]) -> list[Run]:
    """The runs as they are with images lowered by each network's own kernel, where that was evaluated.

    Networks with the perfect kernel are among them, if others are: their images are lowered by it anyway.
    """
    changed = []
    for run in runs:
        lowered = [result.lowered_by_own_kernel() for result in run.results if result.adaptive]
        if lowered and all(lowered):
            changed.append(Run(tuple(result for result in lowered if result is not None)))
    return changed if any(run.first.kernel != "perfect" for run in changed) else []


def in_order(runs: Sequence[Run]) -> list[Run]:
    """ARRNs first, those with dropout leading, then the others as `ARCHITECTURES` lists them, specialists last."""
    places = list(ARCHITECTURES)

    def place(run: Run) -> tuple[bool, bool, bool, int, int, str]:
        model = run.first.model["name"]
        known = places.index(model) if model in places else len(places)
        resolutions = len(run.first.recipe["resolutions"])
        specialist = resolutions == 1
        return not run.first.adaptive, not run.first.dropout, specialist, known, resolutions, run.name

    return sorted(runs, key=place)


def our_best(runs: Sequence[Run], experiment: Literal["robustness", "frontier"]) -> Run | None:
    """The ARRN that rivals are compared with: the paper's with Laplacian dropout, or the largest design beyond it."""
    largest = next(iter(FRONTIER_DESIGNS))
    ours = [run for run in in_order(runs) if run.first.adaptive and run.first.dropout and run.in_any(experiment)]
    return next((run for run in ours if experiment == "robustness" or run.name == largest), None)


def rivals_of(runs: Sequence[Run], experiment: Literal["robustness", "frontier"]) -> list[Run]:
    """The networks without levels that were trained by the recipe of `our_best`."""
    beyond = experiment == "frontier"
    return [run for run in in_order(runs) if not run.first.adaptive and run.in_any("frontier") == beyond]


def source_of(result: Result) -> str | None:
    """The architecture that an ARRN was transplanted from; None for others."""
    source = str(result.model["name"]).removeprefix("arrn_")
    return source if result.adaptive and source in TRANSPLANTS else None


def name_curves(runs: Sequence[tuple[Run, tuple[Point, ...]]]) -> list[Curve]:
    """Curves with labels and looks that tell them apart, in the order given."""
    identities = [_identity(run.first) for run, _ in runs]
    counts = Counter(label for label, _, _ in identities)
    looks: set[tuple[str, int]] = set()
    curves = []
    for (run, points), (label, family, first) in zip(runs, identities, strict=True):
        # Variants that model and recipe do not tell apart: the names of their runs do.
        label = label if counts[label] == 1 else f"{label} ({run.name})"
        member = next(n for n in count(first) if (family, n) not in looks)
        looks.add((family, member))
        curves.append(Curve(label, family, points, member))
    return curves


def accuracy_curves(runs: Sequence[Run]) -> list[Curve]:
    """The curves of accuracy, with adaptation, of runs in the order given."""
    return name_curves([(run, run.points()) for run in runs])


def _identity(result: Result) -> tuple[str, str, int]:
    """What a run is called, the family of its look, and the first number in that family to try."""
    title, family, member = _adaptive_identity(result) if result.adaptive else _fixed_identity(result)
    # Designs beyond the paper have no other recipe.
    rival = "frontier" in result.experiments and family != "frontier"
    return f"{title} (frontier recipe)" if rival else title, family, member


def _adaptive_identity(result: Result) -> tuple[str, str, int]:
    model, source = str(result.model["name"]), source_of(result)
    if model in FRONTIER_DESIGNS:
        title, member = FRONTIER_DESIGNS[model]
        return title, "frontier", member
    title = "ARRN" if source is None else f"{ARCHITECTURES[source][0]} as ARRN"
    title = title if result.kernel == "perfect" else f"{title}, {result.kernel} kernel,"
    if result.dropout:
        return f"{title} with Laplacian dropout", "arrn", 0
    return f"{title} without dropout", "arrn without dropout", 0


def _fixed_identity(result: Result) -> tuple[str, str, int]:
    model, options, resolutions = str(result.model["name"]), result.model["options"], result.recipe["resolutions"]
    title, family, member = ARCHITECTURES.get(model, (model, "other", 0))
    width = options.get("width", _USUAL_WIDTH)
    title = title if width == _USUAL_WIDTH else f"{title}, {width} channels"
    if family == "switchable":  # it always learns at several resolutions
        return title, family, member
    short = title.removeprefix("ResNet18, ")
    if len(resolutions) == 1:
        return f"{short}, only at {resolutions[0]}", "specialist", 0
    if resolutions:
        return f"{short}, random resolutions", "random", 0
    native, top = options.get("size"), max(point["resolution"] for point in result.report.results)
    if native not in (None, top):
        return f"{short}, native at {native}", "specialist", 0
    return title, family, member
