"""Kernels, dropout and adaptation taken apart: accuracy graphs and the tree of decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import fmean

from arrn.evaluation.decisions import Combination, Decision, decision_tree
from arrn.figures.drawing import Drawing
from arrn.figures.runs import Run, describe, missing_runs
from arrn.plots import Point, draw_ablation, draw_decision_tree

__all__ = ["ablation", "ablation_tree", "tree"]

KERNELS = ("perfect", "fair", "poor")
"""From the best to the poorest, the order of figures and of the paper's claim."""

_WANTED = [Combination(k, dropout, adapt) for k in KERNELS for dropout in (True, False) for adapt in (True, False)]

Combinations = Mapping[Combination, tuple[Point, ...]]


def ablation(dataset: str, runs: Sequence[Run]) -> Drawing:
    """Accuracy over resolution of each combination that there is, one panel for each kernel."""
    stem, lacking = f"ablation-{dataset}", missing_runs(dataset, runs, "ablation")
    chosen = _one_network(runs)
    accuracies = _combinations(chosen)
    if not accuracies:
        return Drawing(stem, None, lacking)
    title = f"{chosen[0].first.model['name']} on {describe(chosen, bands=False)}"
    return Drawing(stem, draw_ablation(accuracies, title), lacking)


def tree(dataset: str, runs: Sequence[Run]) -> Drawing:
    """The decision tree, over the resolutions that all combinations have; it needs every combination."""
    stem, lacking = f"tree-{dataset}", missing_runs(dataset, runs, "ablation")
    chosen = _one_network(runs)
    accuracies = _combinations(chosen)
    missing = tuple(str(combination) for combination in _WANTED if combination not in accuracies)
    if missing:
        return Drawing(stem, None, lacking or missing)
    decisions = _decide(accuracies)
    if decisions is None:
        return Drawing(stem, None, ("a resolution that all runs were evaluated at",))
    named = ", ".join(map(str, sorted(_common_sizes(accuracies), reverse=True)))
    trained = describe(chosen, bands=False)
    title = f"{chosen[0].first.model['name']} on {trained}\naccuracy averaged over resolutions {named}"
    return Drawing(stem, draw_decision_tree(decisions, title), lacking)


def ablation_tree(runs: Sequence[Run]) -> Decision | None:
    """The tree of all combinations, by accuracy averaged over the resolutions that all have; None if one lacks."""
    return _decide(_combinations(_one_network(runs)))


def _decide(accuracies: Combinations) -> Decision | None:
    if any(combination not in accuracies for combination in _WANTED):
        return None
    sizes = _common_sizes(accuracies)
    if not sizes:
        return None
    return decision_tree(
        {
            combination: fmean(point.value for point in points if point.resolution in sizes)
            for combination, points in accuracies.items()
        }
    )


def _common_sizes(accuracies: Combinations) -> set[int]:
    return set.intersection(*({point.resolution for point in points} for points in accuracies.values()))


def _one_network(runs: Sequence[Run]) -> list[Run]:
    """The runs of one architecture that differ in kernel and dropout only; of several, the one with the most."""
    alike: dict[str, list[Run]] = {}
    for run in runs:
        if run.first.adaptive and run.in_any("ablation") and run.first.kernel in KERNELS:
            model = run.first.model
            rest = {key: value for key, value in model["options"].items() if key not in ("kernel", "dropout")}
            alike.setdefault(json.dumps([model["name"], rest], sort_keys=True), []).append(run)
    return max(alike.values(), key=len, default=[])


def _combinations(runs: Sequence[Run]) -> Combinations:
    found: dict[Combination, tuple[Point, ...]] = {}
    for kernel in KERNELS:
        for dropout in (True, False):
            for run in runs:
                if (run.first.kernel, bool(run.first.dropout)) == (kernel, dropout):
                    ways = {Combination(kernel, dropout, adapt): run.points(adapt) for adapt in (True, False)}
                    found |= {combination: points for combination, points in ways.items() if points}
    return found
