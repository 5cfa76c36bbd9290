"""Cutting a traced network into runs of layers, one for each resolution, and a head."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from torch import fx

from arrn.errors import ArrnError
from arrn.models.transplanting.layout import LOWER, Layout, Point, share_left
from arrn.models.transplanting.tracing import describe
from arrn.signal.grid import covers, format_grid

__all__ = ["Pieces", "cut"]


@dataclass(frozen=True)
class Pieces:
    """A network cut up: the runs that become residuals, the last run, and what follows the signal's end.

    Attributes:
        runs: each takes a signal from one resolution to the next.
        base: the last run that lowers the resolution and has weights, with all that follows on signals.
        head: from the last signal to the network's output.
        features: channels that enter each run, the base and the head.
    """

    runs: tuple[fx.GraphModule, ...]
    base: fx.GraphModule
    head: fx.GraphModule
    features: tuple[int, ...]


def cut(traced: fx.GraphModule, layout: Layout, kept_whole: dict[str, str]) -> Pieces:
    """Cuts before each layer that lowers the resolution, at the last point before it.

    What precedes the first such layer goes with it: it has no lower resolution of its own to end on.

    Raises:
        ArrnError: when the resolution grows, or there are not two places to cut, saying where and why.
    """
    nodes = list(traced.graph.nodes)
    falls = _falls(layout.points)
    starts = [layout.points[0], *(before for before, _ in falls[1:])]
    ends = [*starts, layout.points[-1]]
    while len(ends) > 2 and not _has_weights(traced, nodes[ends[-2].index + 1 : ends[-1].index + 1]):
        del ends[-2]  # a base without weights learns nothing: it joins the run before it
    unspliced = _unspliced(falls, layout, kept_whole)
    if len(ends) < 3 or (len(ends) == 3 and unspliced):
        reasons = [*unspliced, *_weightless(falls, len(ends) - 1), *_straddled(nodes, layout)]
        raise ArrnError(_too_few(falls, layout, reasons))
    *runs, base = (
        _piece(traced, nodes[start.index + 1 : end.index + 1], start.node, end.node, layout)
        for start, end in itertools.pairwise(ends)
    )
    (output,) = (node for node in nodes if node.op == "output")
    (answer,) = output.args
    if not isinstance(answer, fx.Node):
        raise ArrnError(f"the network must return one tensor, but it returns a {type(answer).__name__}")
    last = layout.points[-1]
    head = _piece(traced, [n for n in nodes[last.index + 1 :] if n is not output], last.node, answer, layout)
    return Pieces(tuple(runs), base, head, tuple(point.channels for point in ends))


def _falls(points: Sequence[Point]) -> list[tuple[Point, Point]]:
    """The points between which the resolution falls: the last one before the fall, and the first one after it."""
    falls = []
    before = points[0]
    for after in points[1:]:
        if max(b / a for a, b in zip(before.growth, after.growth, strict=True)) > 4 / 3:
            raise ArrnError(
                f"{describe(after.node)} raises the resolution, from {format_grid(before.grid)} to "
                f"{format_grid(after.grid)}: only networks whose resolution falls from input to output can be spliced"
            )
        if share_left(before.growth, after.growth) < LOWER:
            falls.append((before, after))
        elif not covers(before.grid, after.grid):
            continue  # padding that belongs to a layer to come: a cut after it would add to the grid
        before = after
    return falls


def _has_weights(traced: fx.GraphModule, nodes: Sequence[fx.Node]) -> bool:
    modules = (traced.get_submodule(str(node.target)) for node in nodes if node.op == "call_module")
    return any(node.op == "get_attr" for node in nodes) or any(True for m in modules for _ in m.parameters())


def _piece(
    traced: fx.GraphModule, nodes: Sequence[fx.Node], entry: fx.Node, leave: fx.Node, layout: Layout
) -> fx.GraphModule:
    """The nodes as a network of their own, from the value of `entry` to that of `leave`; modules are shared."""
    graph = fx.Graph()
    signal = graph.placeholder("x")
    values = {entry: signal}

    def from_before(node: fx.Node) -> fx.Node:
        """A value made before the cut and used after it: a constant, or a size, which this signal has too."""
        if node not in values:
            if node in layout.counts and layout.counts[node] is None:
                values[node] = graph.call_method("size", (signal, 0))
            elif node in layout.counts:
                values[node] = graph.call_function(int, (layout.counts[node],))
            else:
                values[node] = graph.node_copy(node, from_before)
        return values[node]

    for node in nodes:
        values[node] = graph.node_copy(node, from_before)
    graph.output(from_before(leave))
    piece = fx.GraphModule(traced, graph, type(traced).__name__)
    for user in signal.users:  # lets no layer overwrite the input, which others may hold (`ARRN.forward_levels`)
        if user.op == "call_module" and getattr(piece.get_submodule(str(user.target)), "inplace", False):
            piece.get_submodule(str(user.target)).inplace = False  # type: ignore[assignment]
        elif user.kwargs.get("inplace"):
            user.kwargs = {**user.kwargs, "inplace": False}
    piece.recompile()
    return piece


def _unspliced(falls: Sequence[tuple[Point, Point]], layout: Layout, kept_whole: dict[str, str]) -> list[str]:
    """What hides resolutions from the knife, in words."""
    reasons = [
        f"between {_words(before.node)} and {_words(after.node)} the grid shrinks from {format_grid(before.grid)} to "
        f"{format_grid(after.grid)} without a signal of shape (batch, channels, *space) that is alive alone"
        for before, after in falls
        if share_left(before.growth, after.growth) < 1 / 6 and after.node.all_input_nodes != [before.node]
    ]
    if layout.one_size:
        reasons.append(f"{layout.one_size} (a position embedding or a window ties it to one grid)")
    whole = [f"module {path!r} stays whole, since it cannot be traced: {why}" for path, why in kept_whole.items()]
    return reasons + whole[:2] + [f"{len(whole) - 2} more modules stay whole"] * (len(whole) > 2)


def _weightless(falls: Sequence[tuple[Point, Point]], used: int) -> list[str]:
    """What made places to cut be given up: of the `falls` only the first `used` have weights after them, in words."""
    return [
        f"no layer with weights works on the signal from {_words(after.node)} on (a convolution there would do)"
        for _, after in falls[used : used + 1]
    ]


def _too_few(falls: Sequence[tuple[Point, Point]], layout: Layout, reasons: Sequence[str]) -> str:
    """That there is not enough to cut, and why."""
    places = " and ".join(f"on the way to {_words(after.node)}" for _, after in falls)
    text = (
        "there are too few places to cut this network, where a single signal is alive and layers with weights then "
        f"lower its resolution (two are the least): {places or 'none'}"
    )
    grid = format_grid(layout.points[-1].grid)
    return "; ".join([text, *(reasons or [f"its last signal still has the grid {grid}"])])


def _straddled(nodes: Sequence[fx.Node], layout: Layout) -> list[str]:
    """The first layer that lowers the resolution while something else is needed later, in words."""
    for node, alive in zip(nodes, layout.alive, strict=True):
        if layout.lowers(node):
            others = sorted(_words(value) for value in alive if value is not node)
            if others:
                return [f"{describe(node)} lowers the resolution while skip connections keep alive {', '.join(others)}"]
    return []


def _words(node: fx.Node) -> str:
    return "the input" if node.op == "placeholder" else describe(node)
