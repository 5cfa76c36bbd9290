"""Accuracy against cost, one panel a resolution: every network a point, our designs joined by a line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from arrn.figures.curves import Look, look_of
from arrn.figures.efficiency import how_timed, multiply_adds_of, times_of
from arrn.figures.runs import Run, describe, in_order, missing_runs, name_curves
from arrn.figures.style import Drawing, styled

_PANELS = 3  # resolutions: the highest, a half and a quarter of it


@dataclass(frozen=True)
class Place:
    """A network in a panel.

    Attributes:
        label: its name in the legend.
        look: how it is drawn.
        cost: of one input.
        accuracy: a share of 1.
        low: the lower end of the accuracy's interval.
        high: the upper end.
        ours: whether the line joins it.
        alike: whether it was trained by the recipe of ours; others are drawn fainter.
    """

    label: str
    look: Look
    cost: float
    accuracy: float
    low: float
    high: float
    ours: bool
    alike: bool


Row: TypeAlias = Mapping[int, Sequence[Place]]
"""One measure of cost: by resolution, the networks in that panel."""


def frontier_figure(dataset: str, runs: Sequence[Run]) -> Drawing:
    """Accuracy against multiply-adds and, where they were measured alike, against times, at three resolutions.

    Networks of other experiments, which were trained by other recipes, are shown fainter.
    """
    stem, lacking = f"frontier-{dataset}", [*missing_runs(dataset, runs, "frontier")]
    # Other kernels and networks without dropout belong to the ablation.
    concerned = in_order([run for run in runs if run.first.dropout != 0 and run.first.kernel in (None, "perfect")])
    ours = [run for run in concerned if _is_ours(run)]
    if not ours:
        return Drawing(stem, None, tuple(lacking))
    top = max(point.resolution for point in ours[0].points())
    sizes = [top // 2**n for n in range(_PANELS)]
    rows = {"multiply-adds of one input (millions)": _row(concerned, sizes, _millions)}
    how = how_timed(ours[0])
    if how is None:
        lacking.append(f"times of {ours[0].name}")
    else:
        alike = [run for run in concerned if how_timed(run) == how]
        lacking += [
            f"times of {run.name}, measured as {ours[0].name}'s"
            for run in concerned
            if run.in_any("frontier") and run not in alike
        ]
        label = f"microseconds for one input, {how['device']},\n{how['precision']}, batches of {how['batch_size']}"
        rows[label] = _row(alike, sizes, lambda run: _microseconds(run, int(how["samples"])))
    return Drawing(stem, draw_frontier(rows, describe(concerned)), tuple(lacking))


def _is_ours(run: Run) -> bool:
    return run.first.adaptive and run.in_any("frontier")


def _millions(run: Run) -> dict[int, float]:
    adapt = True if run.first.adaptive else None
    return {point.resolution: point.value for point in multiply_adds_of(run, adapt)}


def _microseconds(run: Run, samples: int) -> dict[int, float]:
    adapt = True if run.first.adaptive else None
    return {point.resolution: 1e6 * point.value / samples for point in times_of(run, adapt)}


def _row(runs: Sequence[Run], sizes: Sequence[int], cost_of: Callable[[Run], Mapping[int, float]]) -> Row:
    curves = name_curves([(run, run.points()) for run in runs])
    row: dict[int, list[Place]] = {size: [] for size in sizes}
    for run, curve in zip(runs, curves, strict=True):
        costs = cost_of(run)
        for point in curve.points:
            if point.resolution in row and point.resolution in costs:
                look = look_of(curve.family, curve.member)
                row[point.resolution].append(
                    Place(
                        curve.label,
                        look,
                        costs[point.resolution],
                        point.value,
                        point.low,
                        point.high,
                        _is_ours(run),
                        run.in_any("frontier"),
                    )
                )
    return row


def draw_frontier(rows: Mapping[str, Row], title: str = "") -> Figure:
    """Draws one row of panels for each measure of cost.

    Args:
        rows: by the label of the horizontal axis.
        title: of the figure.
    """
    columns = max(len(row) for row in rows.values())
    with styled():
        figure = Figure(figsize=(0.6 + 4.2 * columns, 1.2 + 3.6 * len(rows)), layout="constrained")
        grid = figure.subplots(len(rows), columns, squeeze=False)
        known: dict[str, Artist] = {}
        for line, (measure, row) in zip(grid, rows.items(), strict=True):
            for axes, (size, places) in zip(line, row.items(), strict=True):
                _draw_panel(axes, places)
                axes.set_title(f"inputs of {size}x{size}")
                axes.set_xlabel(measure)
                handles, labels = axes.get_legend_handles_labels()
                known |= dict(zip(labels, handles, strict=True))
            line[0].set_ylabel("accuracy (%)")
        figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=min(3, columns), handlelength=2.4)
        figure.suptitle(title, fontsize=11)
        return figure


def _draw_panel(axes: Axes, places: Sequence[Place]) -> None:
    ours = sorted((place for place in places if place.ours), key=lambda place: place.cost)
    if ours:
        look = ours[0].look
        axes.plot(
            [p.cost for p in ours], [100 * p.accuracy for p in ours], "-", color=look.colour, linewidth=look.width
        )
    for place in places:
        height = 100 * place.accuracy
        spread = [[height - 100 * place.low], [100 * place.high - height]]
        options = place.look.options() | {"linestyle": "none"}
        axes.errorbar(
            [place.cost],
            [height],
            yerr=spread,
            elinewidth=0.8,
            label=place.label,
            alpha=1.0 if place.alike else 0.4,
            zorder=3 if place.ours else 2,
            **options,
        )
    axes.set_xscale("log")
    axes.margins(0.1)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
