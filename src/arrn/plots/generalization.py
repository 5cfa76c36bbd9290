"""Two groups of architectures, such as transplanted and fixed, as box plots at each resolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from arrn.plots.looks import Look, look_of
from arrn.plots.style import styled

__all__ = ["draw_generalization"]

Group = Mapping[int, Sequence[float]]

FEW = 10
"""Up to so many architectures, each is also shown as a point."""


def draw_generalization(groups: Mapping[str, tuple[str, Group]], title: str = "") -> Figure:
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
            hatch = _hatch(look)
            handles.append(Patch(facecolor=_pale(look), edgecolor=look.colour, hatch=hatch, label=f"{label} ({count})"))
        axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
        axes.set_xlabel("resolution (samples along each axis)")
        axes.set_ylabel("accuracy (%)")
        axes.grid(visible=False, axis="x")
        figure.legend(handles=handles, loc="outside lower center", ncols=len(groups))
        axes.set_title(title)
        return figure


def _pale(look: Look) -> str:
    return "#9db7c9" if look.face == "full" else "#ffffff"


def _hatch(look: Look) -> str:
    return "" if look.face == "full" else "////"


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
    patch.set(facecolor=_pale(look), edgecolor=look.colour, hatch=_hatch(look))
    if len(values) <= FEW:
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
