"""ARRNs beside other networks: accuracy over resolution, and transplanted against fixed architectures."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from arrn.figures.drawing import Drawing
from arrn.figures.naming import name_curves, source_of
from arrn.figures.runs import Run, describe, missing_runs
from arrn.plots import ARCHITECTURES, Curve, draw_generalization, draw_robustness

__all__ = ["in_order", "robustness", "generalization"]


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


def robustness(dataset: str, runs: Sequence[Run]) -> Drawing:
    """Accuracy over resolution: ARRNs against fixed-resolution networks, and against stronger rivals."""
    stem, lacking = f"robustness-{dataset}", missing_runs(dataset, runs, "robustness", "rivals")
    compared = in_order([run for run in runs if run.in_any("robustness", "rivals")])
    ours = [run for run in compared if run.first.adaptive and run.in_any("robustness")]
    groups = {
        "against fixed-resolution networks": [run for run in compared if run not in ours and run.in_any("robustness")],
        "against stronger rivals": [run for run in compared if run not in ours and not run.in_any("robustness")],
    }
    panels = {title: _curves([*ours, *group]) for title, group in groups.items() if group}
    if not compared:
        return Drawing(stem, None, lacking)
    return Drawing(stem, draw_robustness(panels or {"": _curves(ours)}, describe(compared)), lacking)


def _curves(runs: Sequence[Run]) -> list[Curve]:
    return name_curves([(run, run.points()) for run in runs])


def generalization(dataset: str, runs: Sequence[Run]) -> Drawing:
    """Architectures that were trained both ways: as ARRNs, and as they are."""
    stem, lacking = f"generalization-{dataset}", missing_runs(dataset, runs, "generalization")
    # Of several transplants of one architecture, the last in order of dropout, which is the one with the most.
    concerned = sorted((run for run in runs if run.in_any("generalization")), key=lambda run: run.first.dropout or 0)
    adaptive = {source_of(run.first): run for run in concerned if source_of(run.first) is not None}
    fixed = {run.first.model["name"]: run for run in concerned if not run.first.adaptive}
    both = [name for name in ARCHITECTURES if name in adaptive and name in fixed]
    if not both:
        return Drawing(stem, None, lacking)
    groups = {
        "transplanted into ARRNs": ("transplant", _by_resolution([adaptive[name] for name in both])),
        "fixed resolution": ("resnet", _by_resolution([fixed[name] for name in both])),
    }
    names = ", ".join(ARCHITECTURES[name][0] for name in both)
    compared = [group[name] for group in (adaptive, fixed) for name in both]
    title = f"{describe(compared, bands=False)}\n{textwrap.fill(names, 80)}"
    return Drawing(stem, draw_generalization(groups, title), lacking)


def _by_resolution(runs: Sequence[Run]) -> dict[int, list[float]]:
    """The accuracies of all runs, at the resolutions that all have."""
    curves = [{point.resolution: point.value for point in run.points()} for run in runs]
    return {size: [curve[size] for curve in curves] for size in curves[0] if all(size in curve for curve in curves)}
