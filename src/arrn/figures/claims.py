"""The paper's claims as one table: data set by data set, what was measured, and whether the claim holds there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from arrn.evaluation.comparisons import Decision, check_dual_effect
from arrn.figures.ablation import KERNELS, ablation_tree, overall_tree
from arrn.figures.curves import ARCHITECTURES
from arrn.figures.runs import Run, in_order, our_best, rivals_of, source_of
from arrn.figures.style import Drawing
from arrn.figures.tables import markdown_table
from arrn.models.fixed import BASELINES
from arrn.models.transplanting import TRANSPLANTS

_AGREEMENT = 0.999  # share of the answers that adaptation must leave as they are
_TWICE = 2.0
_SAVING = 1.1  # times fewer multiply-adds at the lowest resolution


@dataclass(frozen=True)
class Finding:
    """What one data set says about a claim.

    Attributes:
        holds: True or False; None where it cannot be told.
        measured: the numbers, in words; the reason where there are none.
    """

    holds: bool | None
    measured: str

    def __str__(self) -> str:
        verdict = {True: "**yes**", False: "**no**", None: "not known"}[self.holds]
        return f"{verdict}: {self.measured}"


def claims_page(datasets: Mapping[str, Sequence[Run]]) -> Drawing:
    """The table, a row for each claim and a column for each data set; below, every network that is above the ARRN."""
    names = list(datasets)
    if not names:
        return Drawing("claims", None, ("results of `arrn reproduce all`",))
    rows = [[claim, *(str(judge(datasets[name])) for name in names)] for claim, judge in _CLAIMS.items()]
    page = markdown_table(["the paper's claim", *names], rows, words=True)
    complete, tree = overall_tree(datasets)
    if tree is not None:
        page += f"\n\nAveraged over {', '.join(complete)}, as in the paper:\n\n"
        page += f"- Laplacian dropout makes up for approximate kernels: {_kernels_in(tree)}\n"
        page += f"- Adaptation helps after dropout and costs accuracy without it: {_dual_effect_in(tree)}"
    for title, list_them in _EXCEPTIONS.items():
        lines = [line for name in names for line in list_them(name, datasets[name])]
        if lines:
            page += f"\n\n{title}:\n\n" + "\n".join(lines)
    return Drawing("claims", None, (), page + "\n")


def _main_pair(runs: Sequence[Run]) -> tuple[Run | None, Run | None]:
    """The ARRN of the experiment `robustness` with Laplacian dropout, and without."""
    ours = [run for run in in_order(runs) if run.first.adaptive and run.in_any("robustness")]
    return our_best(runs, "robustness"), next((run for run in ours if not run.first.dropout), None)


def _accuracy(run: Run, adapt: bool = True) -> dict[int, float]:
    return {point.resolution: point.value for point in run.points(adapt)}


def _above_baselines(runs: Sequence[Run]) -> Finding:
    ours, _ = _main_pair(runs)
    baselines = [run for run in runs if run.first.model["name"] in BASELINES and run.in_any("robustness")]
    if ours is None or not baselines:
        return Finding(None, "not run" if ours is None else "no baseline was run")
    own = _accuracy(ours)
    margins = {
        (size, run.name): own[size] - value
        for run in baselines
        for size, value in _accuracy(run).items()
        if size in own
    }
    (size, name), least = min(margins.items(), key=lambda item: item[1])
    compared = f"{len(baselines)} of {len(BASELINES)} baselines run"
    return Finding(least > 0, f"least margin {100 * least:+.1f} points, over {_title(name)} at {size}; {compared}")


def _doubles(runs: Sequence[Run]) -> Finding:
    ours, without = _main_pair(runs)
    if ours is None or without is None:
        return Finding(None, "not run without dropout" if ours else "not run")
    own, other = _accuracy(ours), _accuracy(without)
    size, ratio = max(((size, own[size] / other[size]) for size in own if size in other), key=lambda pair: pair[1])
    return Finding(ratio >= _TWICE, f"up to {ratio:.1f} times, at {size}")


def _costs_nothing_at_the_top(runs: Sequence[Run]) -> Finding:
    ours, without = _main_pair(runs)
    if ours is None or without is None:
        return Finding(None, "not run without dropout" if ours else "not run")
    one, other = ours.points()[-1], without.points()[-1]
    words = f"{100 * one.value:.1f}% with dropout, {100 * other.value:.1f}% without, at {one.resolution}"
    if one.value < other.value <= one.high:
        return Finding(None, f"{words}, which is within the interval")
    return Finding(one.value >= other.value, words)


def _answers_stay(runs: Sequence[Run]) -> Finding:
    exact = [
        (point["agreement"], run.name, point["resolution"])
        for run in runs
        if run.first.adaptive and run.first.kernel == "perfect"
        for result in run.results
        for point in result.report.results
        if point["adapt"] and point["policy"] == "exact" and point["resolution"] is not None and "agreement" in point
    ]
    if not exact:
        return Finding(None, "not run")
    least, name, size = min(exact)
    networks = len({name for _, name, _ in exact})
    where = "everywhere" if least == 1 else f"of {name} at {size}, where the fewest do"
    words = f"{100 * least:.2f}% of the answers agree {where}; {networks} network{'s' * (networks > 1)}"
    return Finding(least >= _AGREEMENT, words)


def _saves(runs: Sequence[Run]) -> Finding:
    ours, _ = _main_pair(runs)
    if ours is None:
        return Finding(None, "not run")
    costs = {(each["resolution"], each["adapt"]): each["multiply_adds"] for each in ours.first.multiply_adds}
    size = min(resolution for resolution, _ in costs)
    ratio = costs[size, False] / costs[size, True]
    words = f"{ratio:.3g} times fewer multiply-adds at {size}"
    times = {(t["resolution"], t["adapt"]): t["seconds"] for t in ours.first.timings}
    if (size, True) in times:
        words += f", {times[size, False] / times[size, True]:.1f} times less time"
    return Finding(ratio >= _SAVING, words)


def _pairs(runs: Sequence[Run]) -> dict[str, tuple[Run, Run]]:
    """By architecture, its transplant and the network that the layers came from, where both were trained."""
    adaptive = {source: run for run in runs if (source := source_of(run.first)) is not None}
    fixed = {run.name: run for run in runs if not run.first.adaptive}
    return {name: (adaptive[name], fixed[name]) for name in TRANSPLANTS if name in adaptive and name in fixed}


def _transplants(runs: Sequence[Run]) -> Finding:
    gains = {name: (_accuracy(ours), _accuracy(original)) for name, (ours, original) in _pairs(runs).items()}
    if not gains:
        return Finding(None, "not run")
    lowest, top = min(min(own) for own, _ in gains.values()), max(max(own) for own, _ in gains.values())
    low = [own[lowest] - other[lowest] for own, other in gains.values()]
    high = [own[top] - other[top] for own, other in gains.values()]
    words = (
        f"{len(gains)} of {len(TRANSPLANTS)} pairs: {100 * min(low):+.1f} to {100 * max(low):+.1f} points at {lowest}, "
        f"{100 * min(high):+.1f} to {100 * max(high):+.1f} at {top}"
    )
    return Finding(min(low) > 0, words)


def _makes_up_for_kernels(runs: Sequence[Run]) -> Finding:
    tree = ablation_tree(runs)
    return Finding(None, "no complete ablation") if tree is None else _kernels_in(tree)


def _kernels_in(tree: Decision) -> Finding:
    adapted = {
        (kernel.choice, node.choice): leaf.mean
        for kernel in tree.children
        for node in kernel.children
        for leaf in node.children
        if leaf.choice is True
    }
    best, *others = KERNELS
    losses = {
        dropout: max(adapted[best, dropout] - adapted[kernel, dropout] for kernel in others)
        for dropout in (True, False)
    }
    words = f"the worst kernel costs {100 * losses[True]:.1f} points with dropout, {100 * losses[False]:.1f} without"
    return Finding(losses[True] < losses[False], words)


def _dual_effect(runs: Sequence[Run]) -> Finding:
    tree = ablation_tree(runs)
    return Finding(None, "no complete ablation") if tree is None else _dual_effect_in(tree)


def _dual_effect_in(tree: Decision) -> Finding:
    verdicts = check_dual_effect(tree)
    decided = [verdict.holds for verdict in verdicts if verdict.holds is not None]
    if not decided:
        return Finding(None, "every factor is 1.000")
    return Finding(
        all(decided), f"{sum(decided)} of the {len(decided)} factors that differ from 1.000, of {len(verdicts)}"
    )


_CLAIMS: Mapping[str, Callable[[Sequence[Run]], Finding]] = {
    "With Laplacian dropout, above every baseline at every resolution": _above_baselines,
    "Laplacian dropout up to doubles accuracy at low resolutions": _doubles,
    "Laplacian dropout does not cost accuracy at the highest resolution": _costs_nothing_at_the_top,
    "With the perfect kernel, adaptation does not change the answer": _answers_stay,
    "Adaptation saves computation": _saves,
    "Transplanted layers are more robust than their originals": _transplants,
    "Laplacian dropout makes up for approximate kernels": _makes_up_for_kernels,
    "Adaptation helps after dropout and costs accuracy without it": _dual_effect,
}


def _networks_above(dataset: str, runs: Sequence[Run]) -> list[str]:
    """A line for each network without levels that is above the ARRN somewhere, with the resolutions and margins."""
    return _above(dataset, our_best(runs, "robustness"), rivals_of(runs, "robustness"))


def _networks_above_beyond_the_paper(dataset: str, runs: Sequence[Run]) -> list[str]:
    """The same for the largest design beyond the paper and the rivals that were trained by its recipe."""
    return _above(dataset, our_best(runs, "frontier"), rivals_of(runs, "frontier"))


def _above(dataset: str, ours: Run | None, rivals: Sequence[Run]) -> list[str]:
    pairs = [(run, ours) for run in rivals] if ours is not None else []
    return [f"- {dataset}, `{run.name}`: by {places}" for run, own in pairs if (places := _ahead(run, own))]


def _transplants_below(dataset: str, runs: Sequence[Run]) -> list[str]:
    """A line for each transplant that is below its original somewhere, with the resolutions and margins."""
    pairs = _pairs(runs).values()
    return [f"- {dataset}, `{ours.name}`: by {places}" for ours, other in pairs if (places := _ahead(other, ours))]


def _ahead(run: Run, of: Run) -> str:
    """Where a run is above another one, in words: points and resolutions."""
    own = _accuracy(of)
    ahead = {size: value - own[size] for size, value in reversed(_accuracy(run).items()) if value > own.get(size, 1)}
    return ", ".join(f"{100 * gain:.1f} at {size}" for size, gain in ahead.items())


_EXCEPTIONS: Mapping[str, Callable[[str, Sequence[Run]], list[str]]] = {
    "Networks above the ARRN with Laplacian dropout, in points of accuracy at each resolution": _networks_above,
    "Networks above ARRN medium, trained by the same recipe, in points of accuracy at each resolution": (
        _networks_above_beyond_the_paper
    ),
    "Transplants below their originals, in points of accuracy at each resolution": _transplants_below,
}


def _title(name: str) -> str:
    return ARCHITECTURES.get(name, (name,))[0]
