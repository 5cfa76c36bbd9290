"""Accuracy over resolution of networks trained at full resolution: line by line, and as boxes of many architectures."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from arrn.datasets import facts_of
from arrn.figures.curves import ARCHITECTURES, Curve, Look, draw_curve, label_ends, look_of, resolution_axis
from arrn.figures.runs import Run, accuracy_curves, describe, in_order, missing_runs, source_of
from arrn.figures.style import Drawing, styled

_FEW = 10  # up to so many architectures, each is also shown as a point


def robustness_figure(dataset: str, runs: Sequence[Run]) -> Drawing:
    """Accuracy over resolution: ARRNs against fixed-resolution networks, and against stronger rivals."""
    stem, lacking = f"robustness-{dataset}", missing_runs(dataset, runs, "robustness", "rivals")
    compared = in_order([run for run in runs if run.in_any("robustness", "rivals")])
    ours = [run for run in compared if run.first.adaptive and run.in_any("robustness")]
    groups = {
        "against fixed-resolution networks": [run for run in compared if run not in ours and run.in_any("robustness")],
        "against stronger rivals": [run for run in compared if run not in ours and not run.in_any("robustness")],
    }
    panels = {title: accuracy_curves([*ours, *group]) for title, group in groups.items() if group}
    if not compared:
        return Drawing(stem, None, lacking)
    title = describe(compared)
    if any(run.first.adaptive and run.first.recipe["policy"] == "cheap" for run in compared):
        title += "\npolicy cheap: an ARRN lowers an input between two grids to the lower grid, hence the plateaus"
    seconds = facts_of(dataset).seconds
    rate = None if seconds is None else 1 / seconds
    return Drawing(stem, draw_robustness(panels or {"": accuracy_curves(ours)}, title, rate), lacking)


def draw_robustness(panels: Mapping[str, Sequence[Curve]], title: str = "", rate: float | None = None) -> Figure:
    """One panel for each group of networks, side by side on one scale; values are shares of 1.

    Args:
        panels: the curves of each panel, by its title. Curves that belong in several are given in each.
        title: of the figure.
        rate: of sound: samples per second at a resolution of 1; the horizontal axis is then in Hz.
    """
    with styled():
        figure = Figure(figsize=(0.6 + 6.6 * len(panels), 4.8), layout="constrained")
        row = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, (name, curves) in zip(row, panels.items(), strict=True):
            for curve in curves:
                draw_curve(axes, curve, scale=100)
            resolution_axis(axes, [size for curve in curves for size in curve.resolutions], rate=rate)
            axes.set_title(name)
        for axes, curves in zip(row, panels.values(), strict=True):  # when no limit changes any more
            label_ends(axes, curves, scale=100)
        row[0].set_ylabel("accuracy (%)")
        figure.suptitle(title, fontsize=11)
        return figure


def generalization_figure(dataset: str, runs: Sequence[Run]) -> Drawing:
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


def draw_generalization(groups: Mapping[str, tuple[str, Mapping[int, Sequence[float]]]], title: str = "") -> Figure:
    """Box plots of accuracy (shares of 1): quartiles, whiskers to the extremes, the median in black.

    Args:
        groups: by label, the family whose look is used, and for each resolution the accuracies of the
            group's architectures.
        title: of the figure.
    """
    sizes = sorted({size for _, group in groups.values() for size in group})
    place = {size: n for n, size in enumerate(sizes)}
    width = 0.7 / max(1, len(groups))
    with styled():
        figure = Figure(figsize=(max(5.0, 0.6 + 0.85 * len(sizes)), 4.6), layout="constrained")
        axes = figure.subplots()
        handles = []
        for n, (label, (family, group)) in enumerate(groups.items()):
            look, shift = look_of(family), (n - (len(groups) - 1) / 2) * width
            for size, values in group.items():
                _draw_box(axes, place[size] + shift, [100 * value for value in values], 0.85 * width, look)
            count = max(len(values) for values in group.values())
            handles.append(Patch(**_fill(look), label=f"{label} ({count})"))
        axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
        axes.set_xlabel("resolution (samples along each axis)")
        axes.set_ylabel("accuracy (%)")
        axes.grid(visible=False, axis="x")
        figure.legend(handles=handles, loc="outside lower center", ncols=len(groups))
        axes.set_title(title)
        return figure


def _fill(look: Look) -> dict[str, Any]:
    full = look.face == "full"
    return {
        "facecolor": "#9db7c9" if full else "#ffffff",
        "edgecolor": look.colour,
        "hatch": "" if full else "////",
    }


def _draw_box(axes: Axes, x: float, values: Sequence[float], width: float, look: Look) -> None:
    box = axes.boxplot(
        [values],
        positions=[x],
        widths=[width],
        whis=(0, 100),
        showfliers=False,
        patch_artist=True,
        manage_ticks=False,
        medianprops={"color": "black", "linewidth": 1.6},
        whiskerprops={"color": look.colour},
        capprops={"color": look.colour},
    )
    (patch,) = box["boxes"]
    patch.set(**_fill(look))
    if len(values) <= _FEW:
        spread = np.linspace(-0.25, 0.25, len(values)) * width if len(values) > 1 else np.zeros(1)
        axes.scatter(
            x + spread,
            values,
            s=10,
            marker=look.marker,
            facecolor=look.colour if look.face == "full" else "white",
            edgecolor="black",
            linewidth=0.8,
            zorder=3,
        )
