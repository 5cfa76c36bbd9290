"""The effect of kernel, dropout and adaptation on accuracy: over resolution with a table of gaps, and as a tree."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from arrn.errors import unknown_name
from arrn.evaluation.comparisons import (
    AdaptationGap,
    Combination,
    Decision,
    Verdict,
    adaptation_gap,
    check_dual_effect,
    decision_tree,
    effect_grows,
)
from arrn.figures.curves import Curve, Look, Point, draw_curve, resolution_axis
from arrn.figures.runs import Run, describe, missing_runs, with_own_kernel
from arrn.figures.style import Drawing, styled

KERNELS = ("perfect", "fair", "poor")
"""From the best to the poorest, the order of figures and of the paper's claim."""

_COLOURS = {"perfect": ("#1b6e4f", "#74b99a"), "fair": ("#a3202f", "#e58e98"), "poor": ("#1f4e8c", "#86aede")}
_COLUMNS = ("mean", "s.d.", "lowest", "highest")  # of the table of gaps
_DEPTHS = ("all combinations", "smoothing kernel", "trained with dropout", "run with adaptation")
_RULE = (
    "A number is the average accuracy below its node, divided by that of the node above. Black: used, white: not.\n"
    "On the last two levels theory wants factors above 1 where the colours of both nodes agree (solid edges), below 1 "
    "where not (dotted)."
)
_MARKS = {True: "agrees", False: "disagrees", None: "equal"}
_OWN_KERNEL = "images lowered by each network's own kernel"
_WANTED = [Combination(*choices) for choices in product(KERNELS, (True, False), (True, False))]

Accuracies: TypeAlias = Mapping[Combination, Sequence[Point]]
"""Points over resolution, shares of 1, of each combination that there is."""


def ablation_figure(dataset: str, runs: Sequence[Run]) -> Drawing:
    """Accuracy over resolution of each combination that there is, one panel for each kernel."""
    return _ablation_figure(f"ablation-{dataset}", dataset, runs, "")


def ablation_figures_by_own_kernel(name: str, dataset: str, runs: Sequence[Run]) -> Iterator[Drawing]:
    """The figure "ablation" or "tree" once more with images lowered by each network's own kernel, if there are any."""
    if own := with_own_kernel(runs):
        draw = {"ablation": _ablation_figure, "tree": _tree_figure}[name]
        yield draw(f"{name}-own-kernel-{dataset}", dataset, own, f"\n{_OWN_KERNEL}")


def tree_figure(dataset: str, runs: Sequence[Run]) -> Drawing:
    """The decision tree, over the resolutions that all combinations have; it needs every combination."""
    return _tree_figure(f"tree-{dataset}", dataset, runs, "")


def _ablation_figure(stem: str, dataset: str, runs: Sequence[Run], remark: str) -> Drawing:
    lacking = missing_runs(dataset, runs, "ablation")
    chosen = _one_network(runs)
    accuracies = _accuracies(chosen)
    if not accuracies:
        return Drawing(stem, None, lacking)
    title = f"{chosen[0].first.model['name']} on {describe(chosen, bands=False)}{remark}"
    return Drawing(stem, draw_ablation(accuracies, title), lacking)


def _tree_figure(stem: str, dataset: str, runs: Sequence[Run], remark: str) -> Drawing:
    lacking = missing_runs(dataset, runs, "ablation")
    chosen = _one_network(runs)
    accuracies = _accuracies(chosen)
    missing = tuple(str(combination) for combination in _WANTED if combination not in accuracies)
    if missing:
        return Drawing(stem, None, lacking or missing)
    tree = _tree(accuracies)
    if tree is None:
        return Drawing(stem, None, ("a resolution that all runs were evaluated at",))
    named = ", ".join(map(str, sorted(_common_sizes(accuracies), reverse=True)))
    trained = describe(chosen, bands=False)
    title = f"{chosen[0].first.model['name']} on {trained}{remark}\naccuracy averaged over resolutions {named}"
    return Drawing(stem, draw_decision_tree(tree, title), lacking)


def overall_tree_figure(datasets: Mapping[str, Sequence[Run]]) -> Drawing | None:
    """The decision tree over all data sets that have every combination, as in the paper; None for fewer than two.

    Accuracies are averaged over the resolutions of a data set, then over data sets, which weigh the same.
    """
    complete, tree = overall_tree(datasets)
    if tree is None:
        return None
    concerned = [name for name, runs in datasets.items() if _one_network(runs)]
    lacking = tuple(f"a complete ablation of {name}" for name in concerned if name not in complete)
    title = f"accuracy averaged over resolutions, then over {', '.join(complete)}"
    return Drawing("tree-all", draw_decision_tree(tree, title), lacking)


def overall_tree(datasets: Mapping[str, Sequence[Run]]) -> tuple[list[str], Decision | None]:
    """The data sets that have every combination, and the tree over all of them; no tree for fewer than two."""
    found = {name: _means(_accuracies(_one_network(runs))) for name, runs in datasets.items()}
    complete = {name: means for name, means in found.items() if means is not None}
    if len(complete) < 2:
        return list(complete), None
    return list(complete), decision_tree({each: fmean(means[each] for means in complete.values()) for each in _WANTED})


def ablation_tree(runs: Sequence[Run]) -> Decision | None:
    """The tree of all combinations, by accuracy averaged over the resolutions that all have; None if one lacks."""
    return _tree(_accuracies(_one_network(runs)))


def ablation_gaps(runs: Sequence[Run]) -> list[tuple[Run, AdaptationGap]]:
    """Statistics over resolutions of what adaptation changes, for each run of the ablation."""
    found = []
    for run in _one_network(runs):
        adapted, full = ({point.resolution: point.value for point in run.points(adapt)} for adapt in (True, False))
        found.append((run, adaptation_gap(adapted, full)))
    return found


def _tree(accuracies: Accuracies) -> Decision | None:
    means = _means(accuracies)
    return None if means is None else decision_tree(means)


def _means(accuracies: Accuracies) -> dict[Combination, float] | None:
    """Of every combination, over the resolutions that all have; None if a combination or a resolution lacks."""
    if any(combination not in accuracies for combination in _WANTED):
        return None
    sizes = _common_sizes(accuracies)
    if not sizes:
        return None
    return {
        combination: fmean(point.value for point in points if point.resolution in sizes)
        for combination, points in accuracies.items()
    }


def _common_sizes(accuracies: Accuracies) -> set[int]:
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


def _accuracies(runs: Sequence[Run]) -> Accuracies:
    found: dict[Combination, tuple[Point, ...]] = {}
    for kernel, dropout in product(KERNELS, (True, False)):
        for run in runs:
            if (run.first.kernel, bool(run.first.dropout)) == (kernel, dropout):
                ways = {Combination(kernel, dropout, adapt): run.points(adapt) for adapt in (True, False)}
                found |= {combination: points for combination, points in ways.items() if points}
    return found


def ablation_look(kernel: str, dropout: bool, adapt: bool) -> Look:
    """The kernel's hue; dark circles with dropout, bright squares without; solid and full with adaptation.

    >>> ablation_look("fair", dropout=True, adapt=False).line
    '--'
    """
    if kernel not in _COLOURS:
        raise unknown_name("kernel", kernel, _COLOURS)
    dark, bright = _COLOURS[kernel]
    colour, marker = (dark, "o") if dropout else (bright, "s")
    # Without adaptation, larger open markers: where both lines coincide, as theory wants, both are seen.
    return Look(colour, "-", marker, "full", 2.0, 4.5) if adapt else Look(colour, "--", marker, "open", 1.2, 9)


def draw_ablation(accuracies: Accuracies, title: str = "") -> Figure:
    """One panel and one table for each kernel, in the order given; values are shares of 1.

    Args:
        accuracies: points over resolution, of each combination that there is. The area between a network's
            two lines, with and without adaptation, is shaded, and the table tells its size.
        title: of the figure.
    """
    kernels = list(dict.fromkeys(combination.kernel for combination in accuracies))
    with styled():
        figure = Figure(figsize=(0.6 + 4.0 * len(kernels), 5.8), layout="constrained")
        grid = figure.subplots(2, len(kernels), squeeze=False, sharey="row", height_ratios=[1, 0.24])
        for column, kernel in enumerate(kernels):
            upper, lower = grid[0, column], grid[1, column]
            _draw_table(lower, _draw_kernel(upper, kernel, accuracies))
            upper.set_title(f"{kernel} kernel")
            upper.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=1, handlelength=3.6)
        grid[0, 0].set_ylabel("accuracy (%)")
        figure.suptitle(title, fontsize=11)
        return figure


def _draw_kernel(axes: Axes, kernel: str, accuracies: Accuracies) -> list[tuple[str, list[str]]]:
    """Draws the lines of one kernel; returns the rows of its table."""
    rows = []
    resolutions: list[int] = []
    for dropout in (True, False):
        name = f"{'with' if dropout else 'without'} dropout"
        values: dict[bool, dict[int, float]] = {}
        for adapt in (True, False):
            points = accuracies.get(Combination(kernel, dropout, adapt), ())
            if points:
                label = f"{name}, {'adapted' if adapt else 'all levels'}"
                # Without intervals: what is shaded here is the gap between two lines.
                bare = tuple(Point(p.resolution, p.value, p.value, p.value) for p in points)
                draw_curve(axes, Curve(label, "arrn", bare), ablation_look(kernel, dropout, adapt), scale=100)
                values[adapt] = {point.resolution: point.value for point in points}
                resolutions += values[adapt]
        if len(values) == 2:
            sizes = sorted(set(values[True]) & set(values[False]))
            adapted, full = ({size: values[adapt][size] for size in sizes} for adapt in (True, False))
            lower, upper = ([100 * each[size] for size in sizes] for each in (adapted, full))
            colour = ablation_look(kernel, dropout, True).colour
            axes.fill_between(sizes, lower, upper, color=colour, alpha=0.25, linewidth=0)
            rows.append((name, adaptation_gap(adapted, full).cells()))
    resolution_axis(axes, resolutions, apart=0.2)
    return rows


def _draw_table(axes: Axes, rows: Sequence[tuple[str, list[str]]]) -> None:
    axes.axis("off")
    if not rows:
        return
    axes.set_title("adapted less all levels (points)", fontsize=9)
    table = axes.table(
        cellText=[[name, *cells] for name, cells in rows],
        colLabels=["", *_COLUMNS],
        colWidths=[0.36, *[0.16] * len(_COLUMNS)],
        bbox=Bbox.unit(),
        edges="horizontal",
    )
    table.auto_set_font_size(False)
    table.set_fontsize(9)


def draw_decision_tree(tree: Decision, title: str = "") -> Figure:
    """Draws kernels, dropout and adaptation from top to bottom; below the leaves, the line of the ablation graph."""
    verdicts = check_dual_effect(tree)
    leaves = 4 * len(tree.children)
    with styled():
        figure = Figure(figsize=(1.8 + 0.9 * leaves, 5.6), layout="constrained")
        axes = figure.subplots()
        axes.axis("off")
        axes.set_xlim(-2.1, leaves - 0.5)
        axes.set_ylim(-4.25, 0.4)
        for depth, name in enumerate(_DEPTHS):
            axes.text(-2.05, -depth, name.replace(" ", "\n", 1), va="center", fontsize=9, color="0.35")
        places = iter(range(leaves))
        _draw_node(axes, tree, (), places, iter(verdicts))
        axes.set_title(title)
        figure.supxlabel(f"{_RULE}\n{_findings(tree, verdicts)}", fontsize=9)
        return figure


def _findings(tree: Decision, verdicts: Sequence[Verdict]) -> str:
    decided = [verdict.holds for verdict in verdicts if verdict.holds is not None]
    grows = {True: "grows", False: "does not grow", None: "is too small to tell"}
    with_dropout, without = (grows[effect_grows(tree, dropout)] for dropout in (True, False))
    return (
        f"This holds at {sum(decided)} of the {len(decided)} leaves that differ from 1 in three decimals. From kernel "
        f"to kernel, the effect of adaptation {with_dropout} (with dropout) and {without} (without)."
    )


def _draw_node(
    axes: Axes, node: Decision, path: tuple[str | bool, ...], places: Iterator[int], verdicts: Iterator[Verdict]
) -> float:
    """Draws what is below the node, then the node above the middle of it; returns where it is."""
    depth = len(path)
    if not node.children:
        x = float(next(places))
        _draw_leaf_notes(axes, x, node, next(verdicts))
    else:
        xs = [_draw_node(axes, child, (*path, child.choice), places, verdicts) for child in node.children]
        x = sum(xs) / len(xs)
        for below, child in zip(xs, node.children, strict=True):
            opposed = depth == 2 and child.choice != node.choice
            line = ":" if opposed else "-"
            axes.plot([x, below], [-depth, -depth - 1], linestyle=line, linewidth=1.4, color="0.3", zorder=1)
    _draw_factor(axes, x, node, depth)
    return x


def _draw_factor(axes: Axes, x: float, node: Decision, depth: int) -> None:
    if depth == 0:
        text, fill, ink = f"{node.mean:.1%}", "0.85", "black"
    elif depth == 1:
        kernel = str(node.choice)
        text, fill, ink = f"{kernel}\n{node.factor:.3f}", ablation_look(kernel, True, True).colour, "white"
    else:
        text, fill, ink = f"{node.factor:.3f}", *(("black", "white") if node.choice else ("white", "black"))
    box = {"boxstyle": "round,pad=0.45,rounding_size=0.6", "facecolor": fill, "edgecolor": "black"}
    axes.text(x, -depth, text, ha="center", va="center", color=ink, fontsize=9.5, bbox=box, zorder=2)


def _draw_leaf_notes(axes: Axes, x: float, leaf: Decision, verdict: Verdict) -> None:
    combination = verdict.combination
    look = ablation_look(combination.kernel, combination.dropout, combination.adapt)
    axes.plot([x - 0.3, x, x + 0.3], [-3.42] * 3, markevery=[1], **look.options())
    text = f"{leaf.mean:.1%}\n{_MARKS[verdict.holds]}"
    weight = "bold" if verdict.holds is False else "normal"
    axes.text(x, -3.62, text, ha="center", va="top", fontsize=8.5, fontweight=weight)
