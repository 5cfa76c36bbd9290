"""Inference time over resolution: what adaptation saves, beside networks that cannot adapt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.figure
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from arrn.plots.style import COLOURS, save_figure, styled

__all__ = ["EfficiencyLine", "plot_efficiency"]

_OURS = COLOURS[1]  # the paper's is red too
_OTHERS = [colour for colour in COLOURS if colour != _OURS]
_OTHER_STYLES = ["-.", ":", (0, (5, 1)), (0, (1, 1))]
_MARKERS = "sD^vP*X"
_LOGARITHMIC_FROM = 8  # times the smallest: below, a linear axis that starts at 0 is the more honest


@dataclass(frozen=True)
class EfficiencyLine:
    """The time of one network at several resolutions.

    Attributes:
        model: its name.
        adapt: whether levels are skipped; None for a network that has none.
        points: resolution, and the median, lower and upper quartile of the seconds.
    """

    model: str
    adapt: bool | None
    points: Sequence[tuple[int, float, float, float]]

    @property
    def label(self) -> str:
        """What the legend calls it."""
        return self.model + {None: "", True: ", adapted", False: ", all levels"}[self.adapt]


def plot_efficiency(
    path: Path, panels: Mapping[str, Sequence[EfficiencyLine]], title: str = "", images: int = 10_000
) -> Path:
    """Draws a panel for each entry: lines of time over resolution, the saving of adaptation shaded.

    Args:
        path: a file ending in .png or .svg.
        panels: the lines of each panel by its title; times are those of `images` images.
        title: of the figure.
        images: how many images the times are for.
    """
    with styled():
        figure = matplotlib.figure.Figure(figsize=(5.4 * len(panels) + 0.6, 4.6))
        for axes, (name, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
            _draw(axes, lines)
            axes.set_title(name)
            axes.set_ylabel(f"seconds for {images:,} images")
        first = figure.axes[0]
        handles, labels = first.get_legend_handles_labels()
        # Below the panels, once for all of them: no line is ever behind it.
        figure.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=min(3, len(labels)))
        figure.suptitle(title)
        figure.tight_layout()
        return save_figure(figure, path)


def _draw(axes: Axes, lines: Sequence[EfficiencyLine]) -> None:
    others = [line for line in lines if line.adapt is None]
    for line in lines:
        x = [point[0] for point in line.points]
        median, lower, upper = ([point[part] for point in line.points] for part in (1, 2, 3))
        if line.adapt is None:
            n = others.index(line)
            style, marker = _OTHER_STYLES[n % len(_OTHER_STYLES)], _MARKERS[n % len(_MARKERS)]
            colour, width = _OTHERS[n % len(_OTHERS)], 1.4
        else:
            style, marker, colour, width = "-" if line.adapt else "--", "o", _OURS, 2.0
        spread = [[m - low for m, low in zip(median, lower, strict=True)]]
        spread += [[high - m for m, high in zip(median, upper, strict=True)]]
        axes.errorbar(
            x,
            median,
            yerr=spread,
            linestyle=style,
            marker=marker,
            color=colour,
            linewidth=width,
            elinewidth=1,
            markersize=4.5,
            label=line.label,
        )
    _shade_the_saving(axes, lines)
    _scale(axes, lines)


def _shade_the_saving(axes: Axes, lines: Sequence[EfficiencyLine]) -> None:
    for model in dict.fromkeys(line.model for line in lines):
        adapted, full = (
            {point[0]: point[1] for line in lines if line.model == model and line.adapt is way for point in line.points}
            for way in (True, False)
        )
        x = sorted(adapted.keys() & full.keys())
        if x:
            low, high = [adapted[r] for r in x], [max(adapted[r], full[r]) for r in x]
            axes.fill_between(x, low, high, color=_OURS, alpha=0.15, linewidth=0, label="saved by adaptation")


def _scale(axes: Axes, lines: Sequence[EfficiencyLine]) -> None:
    times = [point[1] for line in lines for point in line.points]
    if max(times) > _LOGARITHMIC_FROM * min(times):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(bottom=0)
    axes.set_xscale("log", base=2)
    sizes = sorted({point[0] for line in lines for point in line.points})
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("resolution (samples along each axis)")
