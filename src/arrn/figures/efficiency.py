"""Cost over resolution, as inference time and as multiply-adds, with what adaptation saves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from arrn.figures.curves import Curve, Point, draw_curve, look_of, resolution_axis
from arrn.figures.runs import Run, in_order, missing_runs, name_curves
from arrn.figures.style import Drawing, styled

_LOGARITHMIC_FROM = 8  # times the smallest: below, a linear axis that starts at 0 is the more honest


@dataclass(frozen=True)
class Saving:
    """An ARRN's cost when it skips levels and when it runs them all, over the same resolutions."""

    adapted: Curve
    full: Curve


Panel: TypeAlias = tuple[Saving | None, Sequence[Curve]]
"""One measure of cost: an ARRN, if there is one, and the other networks."""


def efficiency_figure(dataset: str, runs: Sequence[Run]) -> Drawing:
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
    how = how_timed(ours)
    if how is None:
        lacking += [f"times of {run.name}" for run in (ours, *others) if how_timed(run) is None]
    else:
        alike = [run for run in others if how_timed(run) == how]
        lacking += [f"times of {run.name}, measured as {ours.name}'s" for run in others if run not in alike]
        panels[f"inference time of {how['samples']:,} images (s)"] = _panel(ours, alike, times_of)
    panels["multiply-adds of one image (millions)"] = _panel(ours, others, multiply_adds_of)
    title = dataset
    if how is not None:
        title = f"{dataset}; times on {how['device']}, {how['precision']}, batches of {how['batch_size']}"
    return Drawing(stem, draw_efficiency(panels, title), tuple(lacking))


def how_timed(run: Run) -> Mapping[str, Any] | None:
    """How a run was timed; None if it was not."""
    first = next(iter(_timings(run)), None)
    return None if first is None else {key: first[key] for key in ("samples", "batch_size", "precision", "device")}


def _timings(run: Run) -> Sequence[Mapping[str, Any]]:
    """Of the first seed that was timed: time does not depend on the weights."""
    return next((result.timings for result in run.results if result.timings), ())


def times_of(run: Run, adapt: bool | None) -> tuple[Point, ...]:
    """Seconds for the whole split at each resolution, lowest first; none if the run was not timed."""
    found = [t for t in _timings(run) if t["adapt"] is adapt]
    points = [Point(t["resolution"], t["seconds"], t["lower"], t["upper"]) for t in found]
    return tuple(sorted(points, key=lambda point: point.resolution))


def multiply_adds_of(run: Run, adapt: bool | None) -> tuple[Point, ...]:
    """Millions for one sample at each resolution, lowest first."""
    found = [m for m in run.first.multiply_adds if m["adapt"] is adapt]
    points = [Point(m["resolution"], *[m["multiply_adds"] / 1e6] * 3) for m in found]
    return tuple(sorted(points, key=lambda point: point.resolution))


def _panel(ours: Run, others: Sequence[Run], cost: Callable[[Run, bool | None], tuple[Point, ...]]) -> Panel:
    (adapted,) = name_curves([(ours, cost(ours, True))])
    saving = Saving(
        replace(adapted, label="ARRN, adapted"),
        Curve("ARRN, all levels", adapted.family, cost(ours, False), adapted.member),
    )
    return saving, name_curves([(run, cost(run, None)) for run in others])


def draw_efficiency(panels: Mapping[str, Panel], title: str = "") -> Figure:
    """One panel for each measure of cost, such as seconds: an ARRN's saving, shaded, and other networks.

    Args:
        panels: by the label of the vertical axis, the ARRN and the other networks.
        title: of the figure.
    """
    with styled():
        figure = Figure(figsize=(0.6 + 5.2 * len(panels), 5.0), layout="constrained")
        row = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (measure, (saving, others)) in zip(row, panels.items(), strict=True):
            curves = [*others] if saving is None else [saving.adapted, saving.full, *others]
            if saving is not None:
                _draw_saving(axes, saving)
            for curve in others:
                draw_curve(axes, curve)
            resolution_axis(axes, [size for curve in curves for size in curve.resolutions])
            axes.set_ylabel(measure)
            _cost_axis(axes, [point.value for curve in curves for point in curve.points])
        known: dict[str, Artist] = {}
        for axes in row:
            handles, labels = axes.get_legend_handles_labels()
            known |= dict(zip(labels, handles, strict=True))
        absent = {label: _absent_from(panels, label) for label in known}
        labels = [f"{label} ({absent[label]})" if absent[label] else label for label in known]
        figure.legend(known.values(), labels, loc="outside lower center", ncols=2 * len(row), handlelength=3.6)
        figure.suptitle(title, fontsize=11)
        return figure


def _absent_from(panels: Mapping[str, Panel], label: str) -> str:
    """What is said of a network that one panel has and another lacks, since it was not measured alike."""
    holders = {measure for measure, (_, others) in panels.items() if label in [curve.label for curve in others]}
    lacking = [measure.split(" of ")[0] for measure in panels if holders and measure not in holders]
    return f"no {' or '.join(lacking)}" if lacking else ""


def _cost_axis(axes: Axes, costs: Sequence[float]) -> None:
    if max(costs) <= _LOGARITHMIC_FROM * min(costs):
        axes.set_ylim(bottom=0)
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def _draw_saving(axes: Axes, saving: Saving) -> None:
    look = look_of(saving.adapted.family)
    full = {point.resolution: point.value for point in saving.full.points}
    both = [point for point in saving.adapted.points if point.resolution in full]
    draw_curve(axes, saving.adapted, look)
    draw_curve(axes, saving.full, replace(look, line="--", face="white", width=1.8))
    # Hatched as well as shaded: intervals, which are shaded too, are not taken for it.
    axes.fill_between(
        [point.resolution for point in both],
        [point.value for point in both],
        [full[point.resolution] for point in both],
        facecolor=look.colour,
        edgecolor=look.colour,
        alpha=0.16,
        hatch="///",
        linewidth=0,
        label="saved by adaptation",
    )
