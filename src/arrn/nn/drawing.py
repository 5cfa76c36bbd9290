"""Networks as the paper draws them, a line for each level: `print` shows text, a notebook a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from arrn.nn.dropout import BlocklessLevel
from arrn.nn.introspection import count_parameters, unwrap
from arrn.runtime.elements import Content, Markup, element, notebook_table
from arrn.signal.grid import Grid, format_grid

if TYPE_CHECKING:
    from arrn.nn.arrn import ARRN
    from arrn.nn.chain import LaplacianChain
    from arrn.nn.layers import Projection


@dataclass(frozen=True)
class Line:
    """A part of a network, or a feature map, and what is said of it.

    Attributes:
        part: such as "residual".
        grids: the grid that it takes, and the one that it gives where that is another.
        said: its features, and of a residual the kernel and how likely it is to be dropped.
        kind: of its block.
        parameters: that it has; None where it has none of its own.
    """

    part: str
    grids: tuple[Grid, ...] = ()
    said: tuple[str, ...] = ()
    kind: str = ""
    parameters: int | None = None

    @property
    def way(self) -> str:
        """Its grids in words, such as "32 -> 16"."""
        return " -> ".join(map(format_grid, self.grids))

    @property
    def columns(self) -> tuple[str, str, str]:
        """What is said: features, kernel, dropout."""
        features, kernel, p = (*self.said, "", "", "")[:3]
        return features, kernel, p


@dataclass(frozen=True)
class Drawing:
    """A network, line by line.

    Attributes:
        title: what it is.
        lines: its parts in the order in which a signal passes them.
    """

    title: str
    lines: tuple[Line, ...]

    def as_text(self) -> str:
        """One line for each part, in columns."""
        rows = []
        for line in self.lines:
            count = "" if line.parameters is None else f"{line.parameters:,}"
            said = [text for text in (line.way, *line.said) if text]
            rows.append([line.part, line.way, *line.columns, line.kind, count])
            for n, text in enumerate(rows[-1][1:4], start=1):
                if text and text != said[-1]:
                    rows[-1][n] = f"{text},"
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        texts = [self.title]
        for part, *cells, kind, count in rows:
            columns = " ".join(cell.ljust(width) for cell, width in zip(cells, widths[1:5], strict=True))
            number = f"{count.rjust(widths[-1])} parameters" if count else ""
            texts.append(f"  {part.ljust(widths[0])}  {columns}  {kind.ljust(widths[5])}  {number}".rstrip())
        return "\n".join(texts)

    def as_table(self) -> str:
        """A table for a notebook, with a picture of each part's grids."""
        largest = max((max(grid) for line in self.lines for grid in line.grids), default=1)
        rows: list[tuple[Content, ...]] = [
            (
                line.part,
                _picture(line.grids, largest),
                line.way,
                *line.columns,
                line.kind,
                None if line.parameters is None else f"{line.parameters:,}",
            )
            for line in self.lines
        ]
        header = ("part", "", "grid", "features", "kernel", "dropped", "block", "parameters")
        return notebook_table(header, rows, self.title, right=(7,))


def draw_chain(
    network: LaplacianChain,
    title: str,
    entry: tuple[str, Grid, Projection],
    base_grid: Grid,
    maps: Sequence[Mapping[str, Any]] | None = None,
) -> Drawing:
    """Draws a network or a part of it.

    Args:
        network: its levels, base and head.
        title: what it is.
        entry: what takes the signal to the first level: its name, the grid it is for, and its layer.
        base_grid: the base's.
        maps: the feature maps that are given in the place of the head's answers, as `FeatureInfo` has them.
    """
    steps = network.droppable()
    rates = network.dropout.rates(network.skipped + len(steps))[network.skipped :]
    dropped: dict[Grid, float] = {}
    for step, p in zip(steps, rates, strict=True):
        dropped[step.size] = dropped.get(step.size, 1.0) * p
    name, grid, projection = entry
    through = f"{projection.in_features} -> {projection.out_features} features"
    lines = [Line(name, (grid,), (through,), "", count_parameters(projection))]
    for level in network.levels:
        said = (
            f"{level.in_features} -> {level.out_features} features",
            f"{level.kernel.name}/{level.kernel.boundary}",
            f"p={dropped[level.size]:.3g}",
        )
        kind = _kind(level.block) + ("" if level.form == "paper" else f", {level.form}")
        lines.append(Line("residual", (level.size, level.next_size), said, kind, count_parameters(level)))
    enter = network.levels[-1].out_features if network.levels else projection.out_features
    leave, classes = getattr(network.head, "features", None), getattr(network.head, "num_classes", None)
    if not (isinstance(leave, int) and isinstance(classes, int)):
        leave, classes = enter, None
    if maps is not None:
        leave = ([each["num_chs"] for each in maps if each["module"] == "base"] or [enter])[-1]
    through = f"{enter} features" if leave == enter else f"{enter} -> {leave} features"
    lines.append(Line("base", (base_grid,), (through,), _kind(network.base), count_parameters(network.base)))
    if maps is None:
        answers = f"{leave} features -> {classes} classes" if classes else f"{leave} features"
        lines.append(Line("head", (), (answers,), _kind(network.head), count_parameters(network.head)))
    for each in maps or ():
        made = f"of {each['module']}"
        lines.append(Line(f"map {each['index']}", (each["grid"],), (f"{each['num_chs']} features",), made))
    lines.append(Line("total", parameters=count_parameters(network)))
    return Drawing(title, tuple(lines))


def title_of(network: ARRN, name: str) -> str:
    """What an adaptive network is, in a line."""
    lowered = [step.lower for step in network.droppable() if isinstance(step, BlocklessLevel)]
    ladder = " -> ".join(map(format_grid, network.grids))
    drops = f", drops to {', '.join(map(format_grid, lowered))} too" if lowered else ""
    return f"{name} {ladder}, policy {network.policy}, {network.dropout.draw} draw{drops}"


def _kind(module: nn.Module) -> str:
    return type(unwrap(module)).__name__


def _picture(grids: Sequence[Grid], largest: int) -> Markup | None:
    """A frame as large as the first grid, and in it a plane as large as the last one."""
    if not grids:
        return None
    side = 22
    shapes = []
    for n, grid in enumerate((grids[0], grids[-1])):
        height, width = (grid[-2] if len(grid) > 1 else 0, grid[-1])
        w = max(2.0, (side - 2) * width / largest)
        h = max(2.0, (side - 2) * height / largest)
        look: dict[str, Any] = (
            {"fill": "none", "stroke": "currentColor"} if n == 0 else {"fill": "currentColor", "fill_opacity": ".35"}
        )
        shapes.append(element("rect", x="1", y=f"{side - 1 - h:.2f}", width=f"{w:.2f}", height=f"{h:.2f}", **look))
    return element("svg", *shapes, width=side, height=side, style="vertical-align: middle", aria_hidden="true")
