"""What networks cost over resolution: time and multiply-adds, and what adaptation saves of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from arrn.figures.comparing import in_order
from arrn.figures.drawing import Drawing
from arrn.figures.naming import name_curves
from arrn.figures.runs import Run, missing_runs
from arrn.plots import Curve, Point, Saving, draw_efficiency

__all__ = ["efficiency"]

Panel = tuple[Saving, Sequence[Curve]]


def efficiency(dataset: str, runs: Sequence[Run]) -> Drawing:
    """Inference time and multiply-adds over resolution: an ARRN with and without adaptation, and other networks.

    Times are drawn together only where they were measured alike: on as many images, in the same batches and
    precision, on the same kind of device as the ARRN's.
    """
    stem, lacking = f"efficiency-{dataset}", [*missing_runs(dataset, runs, "efficiency")]
    concerned = in_order([run for run in runs if run.in_any("efficiency")])
    # All designs of the plan have the same ladder, so dropout changes nothing: the first ARRN stands for them.
    ours = next((run for run in concerned if run.first.adaptive), None)
    if ours is None:
        return Drawing(stem, None, tuple(lacking))
    others = [run for run in concerned if not run.first.adaptive]
    panels: dict[str, Panel] = {}
    how = _how(ours)
    if how is None:
        lacking += [f"times of {run.name}" for run in (ours, *others) if _how(run) is None]
    else:
        alike = [run for run in others if _how(run) == how]
        lacking += [f"times of {run.name}, measured as {ours.name}'s" for run in others if run not in alike]
        panels[f"inference time of {how['samples']:,} images (s)"] = _panel(ours, alike, _times)
    panels["multiply-adds of one image (millions)"] = _panel(ours, others, _multiply_adds)
    title = dataset
    if how is not None:
        title = f"{dataset}; times on {how['device']}, {how['precision']}, batches of {how['batch_size']}"
    return Drawing(stem, draw_efficiency(panels, title), tuple(lacking))


def _how(run: Run) -> Mapping[str, Any] | None:
    """How a run was timed; None if it was not."""
    first = next(iter(_timings(run)), None)
    return None if first is None else {key: first[key] for key in ("samples", "batch_size", "precision", "device")}


def _timings(run: Run) -> Sequence[Mapping[str, Any]]:
    """Of the first seed that was timed: time does not depend on the weights."""
    return next((result.timings for result in run.results if result.timings), ())


def _times(run: Run, adapt: bool | None) -> tuple[Point, ...]:
    found = [t for t in _timings(run) if t["adapt"] is adapt]
    points = [Point(t["resolution"], t["seconds"], t["lower"], t["upper"]) for t in found]
    return tuple(sorted(points, key=lambda point: point.resolution))


def _multiply_adds(run: Run, adapt: bool | None) -> tuple[Point, ...]:
    found = [m for m in run.first.multiply_adds if m["adapt"] is adapt]
    points = [Point(m["resolution"], *[m["multiply_adds"] / 1e6] * 3) for m in found]
    return tuple(sorted(points, key=lambda point: point.resolution))


def _panel(ours: Run, others: Sequence[Run], cost: Any) -> Panel:
    (adapted,) = name_curves([(ours, cost(ours, True))])
    saving = Saving(
        replace(adapted, label="ARRN, adapted"),
        Curve("ARRN, all levels", adapted.family, cost(ours, False), adapted.member),
    )
    return saving, name_curves([(run, cost(run, None)) for run in others])
