"""Accuracy over resolution of networks that were trained at full resolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from arrn.plots.curves import Curve, draw_curve, resolution_axis
from arrn.plots.style import styled

__all__ = ["draw_robustness"]


def draw_robustness(panels: Mapping[str, Sequence[Curve]], title: str = "") -> Figure:
    """One panel for each group of networks, side by side on one scale; values are shares of 1.

    Args:
        panels: the curves of each panel, by its title. Curves that belong in several are given in each.
        title: of the figure.
    """
    with styled():
        figure = Figure(figsize=(0.6 + 5.6 * len(panels), 5.6), layout="constrained")
        row = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, (name, curves) in zip(row, panels.items(), strict=True):
            for curve in curves:
                draw_curve(axes, curve, scale=100)
            resolution_axis(axes, [size for curve in curves for size in curve.resolutions])
            axes.set_title(name)
            # Below the axes: no line is ever behind it.
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, handlelength=3.6)
        row[0].set_ylabel("accuracy (%)")
        figure.suptitle(title, fontsize=11)
        return figure
