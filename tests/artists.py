"""Reading figures: what their legends say, and that no two texts of one lie on each other."""

import itertools

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.transforms import Bbox


def legends(figure: Figure) -> list[Legend]:
    """Of the figure and of its axes."""
    return [*figure.legends, *(axes.legend_ for axes in figure.axes if axes.legend_ is not None)]


def labels(legend: Legend) -> list[str]:
    return [text.get_text() for text in legend.get_texts()]


def names_beside(axes: Axes) -> list[str]:
    """The names that `label_ends` wrote, from the highest to the lowest; no two cover each other."""
    axes.figure.draw_without_rendering()
    found = [text for text in axes.texts if text.get_text()]
    boxes = [Text.get_window_extent(text) for text in found]  # without the lines to them
    assert not [pair for pair in itertools.combinations(boxes, 2) if overlap(*pair)], found
    return [text.get_text() for text in sorted(found, key=lambda text: -Text.get_window_extent(text).y0)]


def texts(figure: Figure) -> str:
    """Everything written in the axes and titles, in one."""
    written = [text.get_text() for axes in figure.axes for text in [*axes.texts, axes.title]]
    suptitle = [] if figure._suptitle is None else [figure._suptitle.get_text()]
    return "\n".join([*written, *suptitle])


def check_legends(figure: Figure) -> None:
    """Legends cover no data, and no text in them covers another."""
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer() if hasattr(figure.canvas, "get_renderer") else None
    for legend in legends(figure):
        boxes = [text.get_window_extent(renderer) for text in legend.get_texts()]
        assert not [pair for pair in itertools.combinations(boxes, 2) if overlap(*pair)], labels(legend)
        for axes in figure.axes:
            assert not overlap(legend.get_window_extent(renderer), axes.patch.get_window_extent()), labels(legend)


def overlap(one: Bbox, other: Bbox) -> bool:
    return bool(one.overlaps(other))
