"""Results as tables in Markdown: accuracies, what adaptation changes, the paper's rule, and how to do it again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from arrn.errors import plain
from arrn.evaluation.comparisons import check_dual_effect, effect_grows
from arrn.figures.ablation import ablation_gaps, ablation_tree
from arrn.figures.curves import Point
from arrn.figures.runs import (
    Run,
    accuracy_curves,
    in_order,
    missing_runs,
    our_best,
    outdated_runs,
    rivals_of,
    with_own_kernel,
)
from arrn.figures.style import Drawing
from arrn.provenance import machine_of

_UNEVEN = 1e-3  # float32 rounding is far below, uneven classes far above


def tables_page(dataset: str, runs: Sequence[Run]) -> Drawing:
    """All tables of a data set, each under a heading; what the plan has and nobody ran is named at the end."""
    ordered = in_order(runs)
    lacking = missing_runs(dataset, runs)
    own = with_own_kernel(runs)
    parts = {
        "Accuracy": _accuracies(ordered),
        "Points above its rivals": _gaps(ordered),
        "Balanced accuracy": _balanced(ordered),
        "With and without adaptation": _agreements([run for run in ordered if run.first.adaptive]),
        "What adaptation changes": _gaps_by_adaptation(runs, own),
        "The dual effect of dropout": _rule(runs),
        "Images lowered by the network's own kernel": _accuracies(in_order(own)) if own else "",
        "The dual effect of dropout, images lowered by the network's own kernel": _rule(own),
        "Runs": _runs(ordered),
        "Other settings than the plan has now": _differences(dataset, ordered),
        "Not run": ", ".join(f"`{name}`" for name in lacking),
    }
    sections = [f"### {title}\n\n{text}\n" for title, text in parts.items() if text]
    return Drawing(f"tables-{dataset}", None, lacking, "\n".join(sections))


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, words: bool = False) -> str:
    """A table whose first column is to the left and the others to the right, as numbers are; with `words`, to the left.

    >>> print(markdown_table(["a", "b"], [["x|y", "1"]]))
    | a | b |
    |---|--:|
    | x\\|y | 1 |
    """
    rule = "|---|" + ("---|" if words else "--:|") * (len(head) - 1)
    lines = ["| " + " | ".join(plain(cell).replace("|", r"\|") for cell in cells) + " |" for cells in (head, *rows)]
    return "\n".join([lines[0], rule, *lines[1:]])


def headline_table(runs: Sequence[Run], names: Mapping[str, str], sizes: Sequence[int]) -> str:
    """A few networks side by side: accuracy in percent and million multiply-adds of one sample, at a few resolutions.

    Args:
        runs: of one data set.
        names: what the table calls each run, by the names of the runs and in the order of the rows.
        sizes: the resolutions.

    >>> print(headline_table([], {"resnet18": "ResNet18"}, (32, 8)))
    | network | accuracy at 32 | at 8 | million multiply-adds at 32 / 8 |
    |---|--:|--:|--:|
    """
    by_name = {run.name: run for run in runs}
    found = [(label, by_name[name]) for name, label in names.items() if name in by_name]
    accuracies = [{point.resolution: point.value for point in run.points()} for _, run in found]
    best = {size: max((each[size] for each in accuracies), default=None) for size in sizes}
    rows = []
    for (label, run), values in zip(found, accuracies, strict=True):
        adapted = [each for each in run.first.multiply_adds if each["adapt"] is not False]  # None: it has no levels
        costs = {each["resolution"]: each["multiply_adds"] for each in adapted}
        shown = [f"**{100 * values[n]:.1f}**" if values[n] == best[n] else f"{100 * values[n]:.1f}" for n in sizes]
        rows.append([label, *shown, " / ".join(f"{costs[size] / 1e6:,.0f}" for size in sizes)])
    others = [f"at {size}" for size in sizes[1:]]
    head = ["network", f"accuracy at {sizes[0]}", *others, f"million multiply-adds at {' / '.join(map(str, sizes))}"]
    return markdown_table(head, rows)


def _sizes(runs: Sequence[Run]) -> list[int]:
    return sorted({point.resolution for run in runs for point in run.points()}, reverse=True)


def _labels(runs: Sequence[Run]) -> list[str]:
    return [curve.label for curve in accuracy_curves(runs)]


def _accuracies(runs: Sequence[Run]) -> str:
    """Percent, the mean of the seeds, and half of the interval; the best in bold."""
    sizes = _sizes(runs)
    lines = [{point.resolution: point for point in run.points()} for run in runs]
    best = {size: max(line[size].value for line in lines if size in line) for size in sizes}
    rows = []
    for label, run, line in zip(_labels(runs), runs, lines, strict=True):
        cells = [_percent(line[size], line[size].value == best[size]) if size in line else "" for size in sizes]
        mean = 100 * fmean(point.value for point in line.values()) if len(line) == len(sizes) else None
        rows.append([label, str(len(run.results)), *cells, "" if mean is None else f"{mean:.1f}"])
    return markdown_table(["network", "seeds", *map(str, sizes), "mean"], rows)


def _gaps(runs: Sequence[Run]) -> str:
    """How far the ARRN is above other networks, in points: the paper's, then the largest design beyond the paper."""
    tables = [_gaps_of(our_best(runs, "robustness"), rivals_of(runs, "robustness"))]
    tables.append(_gaps_of(our_best(runs, "frontier"), rivals_of(runs, "frontier")))
    return "\n\n".join(table for table in tables if table)


def _gaps_of(ours: Run | None, rivals: Sequence[Run]) -> str:
    if ours is None or not rivals:
        return ""
    own = {point.resolution: point.value for point in reversed(ours.points())}
    rows = []
    for label, run in zip(_labels(rivals), rivals, strict=True):
        found = {point.resolution: point.value for point in run.points()}
        rows.append([label, *(f"{100 * (own[size] - found[size]):.1f}" if size in found else "" for size in own)])
    return markdown_table([f"points by which {_labels([ours])[0]} is above", *map(str, own)], rows)


def _balanced(runs: Sequence[Run]) -> str:
    """The mean over classes of the accuracy on each, in percent; nothing where classes are as large as each other."""
    sizes, rows = _sizes(runs), []
    for label, run in zip(_labels(runs), runs, strict=True):
        found = _by_resolution(run, "balanced_accuracy")
        rows.append([label, *(f"{100 * fmean(found[size]):.1f}" if size in found else "" for size in sizes)])
    points = (point for run in runs for result in run.results for point in result.points())
    uneven = any(abs(point["balanced_accuracy"] - point["accuracy"]) > _UNEVEN for point in points)
    return markdown_table(["network", *map(str, sizes)], rows) if uneven else ""


def _by_resolution(run: Run, name: str) -> dict[int, list[float]]:
    """What the seeds of a run have under a name, where they have it."""
    found: dict[int, list[float]] = {}
    for point in (point for result in run.results for point in result.points()):
        if name in point:
            found.setdefault(point["resolution"], []).append(point[name])
    return found


def _percent(point: Point, best: bool) -> str:
    value = f"{100 * point.value:.1f}"
    return f"{f'**{value}**' if best else value} ±{50 * (point.high - point.low):.1f}"


def _agreements(runs: Sequence[Run]) -> str:
    """At how many of the test images adapted and full evaluation give the same class, in percent."""
    sizes, rows = _sizes(runs), []
    for label, run in zip(_labels(runs), runs, strict=True):
        found = _by_resolution(run, "agreement")
        # The seed that agrees least stands for all.
        rows.append([label, *(f"{100 * min(found[size]):.2f}" if size in found else "" for size in sizes)])
    return markdown_table(["answers that agree, %", *map(str, sizes)], rows) if rows else ""


def _gaps_by_adaptation(runs: Sequence[Run], own: Sequence[Run]) -> str:
    """The table of the paper's ablation figure: adapted less full accuracy, in points, over the resolutions."""
    rows = []
    for kind, lowered in (("the perfect kernel", runs), ("its own kernel", own)):
        found = [
            (run, gap) for run, gap in ablation_gaps(in_order(lowered)) if kind != "its own kernel" or _approximate(run)
        ]
        labels = _labels([run for run, _ in found])
        rows += [[label, kind, *gap.cells()] for label, (_, gap) in zip(labels, found, strict=True)]
    head = ["adapted less all levels, points", "images lowered by", "mean", "s.d.", "lowest", "highest"]
    return markdown_table(head, rows) if rows else ""


def _approximate(run: Run) -> bool:
    return run.first.kernel != "perfect"


def _rule(runs: Sequence[Run]) -> str:
    """The paper's decision rule, leaf by leaf; nothing unless all combinations were run."""
    tree = ablation_tree(runs)
    if tree is None:
        return ""
    answers = {None: "too close to 1 to tell", True: "yes", False: "**no**"}
    rows = []
    for verdict in check_dual_effect(tree):
        wanted = "above 1" if verdict.above else "below 1"
        outcome = answers[verdict.holds]
        rows.append([str(verdict.combination), wanted, f"{verdict.factor:.4f}", outcome])
    table = markdown_table(["kernel, dropout, adaptation", "theory", "factor", "holds"], rows)
    grows = {dropout: answers[effect_grows(tree, dropout)] for dropout in (True, False)}
    return f"{table}\n\nFurther from 1 for poorer kernels: with dropout {grows[True]}, without {grows[False]}."


def _differences(dataset: str, runs: Sequence[Run]) -> str:
    """The runs that the plan would train otherwise now; nothing where there are none."""
    found = outdated_runs(dataset, runs)
    return "\n".join(f"- `{name}`: {'; '.join(differences)}" for name, differences in found.items())


def _runs(runs: Sequence[Run]) -> str:
    rows = []
    for run in runs:
        first = run.first
        low, high = first.parameters["base"] / 1e6, first.parameters["total"] / 1e6
        size = f"{high:.2f}M" if low == high else f"{low:.2f}M to {high:.2f}M"
        places = dict.fromkeys(machine_of(result.provenance) for result in run.results)
        rows.append(
            [
                f"`{run.name}`",
                ", ".join(str(result.seed) for result in run.results),
                size,
                str(first.epochs),
                ", ".join(f"{result.training_seconds / 60:.1f}" for result in run.results),
                "; ".join(places),
                f"`{run.results[-1].command}`",
            ]
        )
    head = ["run", "seeds", "parameters", "epochs", "minutes of training", "where", "command"]
    return markdown_table(head, rows)
