"""Charts of HTML and SVG that show their values under the mouse, a finger or the keyboard's focus, without a script."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from arrn.pages.markup import Content, Markup, element, join

_COLOURS = 5  # in the style sheet


@dataclass(frozen=True)
class Value:
    """A point of a line: where it is (None: before the axis, as samples come), its value and interval, in percent."""

    place: int | None
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Series:
    """A line of a chart, by name."""

    label: str
    values: tuple[Value, ...]


def line_chart(
    series: Sequence[Series], spell: Callable[[int | None], str], title: str, tick: Callable[[int], str] = str
) -> Markup:
    """Lines over resolution, on a logarithmic axis; each resolution shows all values under the mouse or in focus.

    Args:
        series: the lines.
        spell: what a place is called.
        title: says what the chart shows, for those who do not see it.
        tick: what stands below a place.
    """
    across, names = _places(series, tick)
    low, high = _range([bound for line in series for value in line.values for bound in (value.low, value.high)])

    def up(value: float) -> float:
        return 100 * (value - low) / (high - low)

    step = 20 if high - low > 50 else 10
    ticks = [tick for tick in range(0, 101, step) if low <= tick <= high]
    lines, marks, bands = [], [], list[list[str]]()
    for number, line in enumerate(series):
        on_axis = [value for value in line.values if value.place is not None]
        band = [f"{across[v.place]:.2f} {100 - up(v.high):.2f}" for v in on_axis]
        band += [f"{across[v.place]:.2f} {100 - up(v.low):.2f}" for v in reversed(on_axis)]
        seen = band in bands  # of lines that coincide, one band is enough
        bands.append(band)
        path = " L".join(f"{across[v.place]:.2f} {100 - up(v.value):.2f}" for v in on_axis)
        if on_axis:
            kind = f"line-{number % _COLOURS}"
            if not seen:
                lines.append(element("path", d=Markup(f"M{' L'.join(band)} Z"), class_=f"band {kind}"))
            lines.append(
                element("path", d=Markup(f"M{path}"), class_=f"line {kind}", vector_effect="non-scaling-stroke")
            )
        extra = min(3, len(series) - 1 - number)  # open marks, the first ones larger: where lines coincide, all show
        marks += [
            element(
                "i",
                class_=_mark(number),
                style=f"left:{across[v.place]:.2f}%;bottom:{up(v.value):.2f}%;--extra:{extra}",
            )
            for v in line.values
        ]
    plot = element("svg", *lines, viewBox="0 0 100 100", preserveAspectRatio="none", aria_hidden="true")
    rules = [
        element("div", element("span", f"{tick}%"), style=f"bottom:{up(tick):.2f}%", class_="tick") for tick in ticks
    ]
    stops = _stops(series, across, spell)
    labels = [
        element("span", names[place] if place is not None else "mixed", style=f"left:{x:.2f}%")
        for place, x in across.items()
        if names[place]
    ]
    return element(
        "figure",
        element(
            "div", *rules, plot, *marks, *stops, element("div", *labels, class_="below"), class_="plot", role="group"
        ),
        element("figcaption", *(_key(number, line.label) for number, line in enumerate(series)), class_="legend"),
        class_="chart",
        aria_label=title,
    )


def _places(
    series: Sequence[Series], tick: Callable[[int], str]
) -> tuple[dict[int | None, float], dict[int | None, str]]:
    """Where each place is, in percent from the left, and what stands below it where there is room."""
    places = {value.place for line in series for value in line.values}
    sizes = sorted(place for place in places if place is not None)
    start = 16.0 if None in places and sizes else 4.0
    logs = {size: math.log2(size) for size in sizes}
    spread = max(logs.values()) - min(logs.values()) if len(sizes) > 1 else 0.0
    across: dict[int | None, float] = {None: 4.0 if sizes else 50.0} if None in places else {}
    for size in sizes:
        across[size] = start + (96 - start) * ((logs[size] - logs[sizes[0]]) / spread if spread else 0.5)
    names: dict[int | None, str] = {None: "mixed"}
    named: int | None = None
    for size in reversed(sizes):  # from the highest on, which must be named
        characters = (len(tick(size)) + (0 if named is None else len(names[named]))) / 2
        names[size] = tick(size) if named is None or across[named] - across[size] >= 2 + 2.6 * characters else ""
        named = size if names[size] else named
    return across, names


def _range(values: Sequence[float]) -> tuple[float, float]:
    low = 10 * math.floor(min(values, default=0.0) / 10)
    high = 10 * math.ceil(max(values, default=100.0) / 10)
    return (low, high) if high - low >= 20 else (max(0, high - 20), max(20, high))


def _stops(
    series: Sequence[Series], across: dict[int | None, float], spell: Callable[[int | None], str]
) -> list[Markup]:
    """A column for each place: it takes the mouse and the focus, and shows the values of all lines there."""
    found = sorted(across.items(), key=lambda item: item[1])
    edges = [0.0, *((a[1] + b[1]) / 2 for a, b in pairwise(found)), 100.0]
    stops = []
    for number, (place, x) in enumerate(found):
        left, right = edges[number], edges[number + 1]
        rows: list[Markup] = []
        spoken: list[str] = []
        for which, line in enumerate(series):
            for value in line.values:
                if value.place == place:
                    text = f"{value.value:.1f}% ({value.low:.1f} to {value.high:.1f})"
                    rows.append(_key(which, f"{line.label}: {text}"))
                    spoken.append(f"{line.label} {text}")
        side = "first" if x < 34 else "last" if x > 66 else "middle"
        tip = element("span", element("strong", spell(place)), *rows, class_=f"tip {side}", aria_hidden="true")
        where = 100 * (x - left) / (right - left)
        stops.append(
            element(
                "div",
                tip,
                class_="stop",
                tabindex="0",
                role="img",
                aria_label=f"{spell(place)}: {'; '.join(spoken)}",
                style=f"left:{left:.2f}%;width:{right - left:.2f}%;--at:{where:.2f}%",
            )
        )
    return stops


def _mark(number: int) -> str:
    return f"mark line-{number % _COLOURS} shape-{number % 4}"


def _key(number: int, text: str) -> Markup:
    return element("span", element("i", class_=_mark(number)), text, class_="key")


def bar(share: float, text: Content, kind: str = "") -> Markup:
    """A bar of a length in 0 to 1, with a text on it."""
    length = 100 * min(1.0, max(0.0, share))
    fill = element("i", style=f"width:{length:.1f}%")
    return element("span", fill, element("span", text), class_=f"bar {kind}".strip())


def ladder(grids: Sequence[str], rows: Sequence[tuple[Content, int, Content]], column: str = "multiply-adds") -> Markup:
    """Which levels of a network run, and which are skipped, for inputs of several resolutions.

    Args:
        grids: of the levels, highest first, the base last.
        rows: for each input: its name or picture, the number of the level that it enters on (0 is the top), and what
            stands behind it.
        column: what the last column holds.

    >>> "skipped" in ladder(["32", "16"], [("16x16", 1, "")])
    True
    """
    tallest = len(grids)
    cells: list[Markup] = [element("b", "input"), *(element("b", f"{grid}") for grid in grids), element("b", column)]
    for name, entry, behind in rows:
        cells.append(element("span", name, class_="input"))
        for level in range(len(grids)):
            height = f"--height:{1.3 + 1.7 * (tallest - level) / tallest:.2f}rem"
            runs = level >= entry
            words = "runs" if runs else "skipped"
            cells.append(element("span", words, class_=f"level {words}", style=height))
        cells.append(element("span", behind, class_="behind"))
    columns = f"--levels:{len(grids)}"
    drawn = element("div", join(cells), class_="ladder", style=columns)
    return element("div", drawn, class_="scroll", tabindex="0", role="region", aria_label="levels that run")
