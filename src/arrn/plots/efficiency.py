"""Inference time over resolution, with what adaptation saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from arrn.plots.curves import Curve, draw_curve, resolution_axis
from arrn.plots.looks import look_of
from arrn.plots.style import styled

__all__ = ["Saving", "draw_efficiency"]

_LOGARITHMIC_FROM = 8  # times the smallest: below, a linear axis that starts at 0 is the more honest


@dataclass(frozen=True)
class Saving:
    """An ARRN's cost when it skips levels and when it runs them all, over the same resolutions."""

    adapted: Curve
    full: Curve


def draw_efficiency(panels: Mapping[str, tuple[Saving | None, Sequence[Curve]]], title: str = "") -> Figure:
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
        figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=3 * len(row), handlelength=3.6)
        figure.suptitle(title, fontsize=11)
        return figure


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
