"""Cutting a traced network into runs of layers, one for each resolution, and a head."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import fx

from arrn.errors import ArrnError
from arrn.models.transplanting.layout import LOWER, Layout, Point, share_left
from arrn.models.transplanting.tracing import describe
from arrn.nn.constancy import output_shape
from arrn.signal.grid import Grid, covers, format_grid
from arrn.signal.kernels import Kernel


@dataclass(frozen=True, kw_only=True)
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
    falls = _find_falls(layout.points)
    ends = [layout.points[0], *(fall.before for fall in falls[1:]), layout.points[-1]]
    while len(ends) > 2 and not _has_weights(traced, nodes[ends[-2].index + 1 : ends[-1].index + 1]):
        del ends[-2]  # a base without weights learns nothing: it joins the run before it
    hidden = _hidden_falls(falls, layout, kept_whole)
    if len(ends) < 3 or (len(ends) == 3 and hidden):
        raise ArrnError(_too_few_places(nodes, layout, falls, used=len(ends) - 1, hidden=hidden))
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
    return Pieces(runs=tuple(runs), base=base, head=head, features=tuple(point.channels for point in ends))


class _Fall(NamedTuple):
    """Where the resolution falls: the last point before, and the first one after it."""

    before: Point
    after: Point


def _find_falls(points: Sequence[Point]) -> list[_Fall]:
    falls = []
    before = points[0]
    for after in points[1:]:
        if max(b / a for a, b in zip(before.growth, after.growth, strict=True)) > 4 / 3:
            raise ArrnError(
                f"{describe(after.node)} raises the resolution, from {format_grid(before.grid)} to "
                f"{format_grid(after.grid)}: only networks whose resolution falls from input to output can be spliced"
            )
        if share_left(before.growth, after.growth) < LOWER:
            falls.append(_Fall(before, after))
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


def _hidden_falls(falls: Sequence[_Fall], layout: Layout, kept_whole: dict[str, str]) -> list[str]:
    """What may hide places to cut, in words."""
    reasons = [
        f"between {_words(before.node)} and {_words(after.node)} the grid shrinks from {format_grid(before.grid)} to "
        f"{format_grid(after.grid)} without a signal of shape (batch, channels, *space) that is alive alone"
        for before, after in falls
        if share_left(before.growth, after.growth) < 1 / 6 and after.node.all_input_nodes != [before.node]
    ]
    if layout.one_size:
        reasons.append(f"{layout.one_size} (a position embedding or a window ties it to one grid)")
    whole = [f"module {path!r} stays whole, since it cannot be traced: {why}" for path, why in kept_whole.items()]
    others = len(whole) - 1
    return reasons + whole[:1] + [f"so {'does' if others == 1 else 'do'} {others} more"] * (others > 0)


def _too_few_places(
    nodes: Sequence[fx.Node], layout: Layout, falls: Sequence[_Fall], *, used: int, hidden: Sequence[str]
) -> str:
    """That there are too few places to cut, and why: only the first `used` of the `falls` have weights after them."""
    places = " and ".join(f"on the way to {_words(fall.after.node)}" for fall in falls)
    reasons = [*hidden]
    for fall in falls[used : used + 1]:
        start = _words(fall.after.node)
        reasons.append(f"no layer with weights works on the signal from {start} on (a convolution there would do)")
    for node, alive in zip(nodes, layout.alive, strict=True):
        others = sorted(_words(value) for value in alive if value is not node)
        if others and layout.lowers(node):
            kept = ", ".join(others)
            reasons.append(f"{describe(node)} lowers the resolution while skip connections keep alive {kept}")
            break
    if not reasons:
        reasons = [f"its last signal still has the grid {format_grid(layout.points[-1].grid)}"]
    text = (
        "there are too few places to cut this network, where a single signal is alive and layers with weights then "
        f"lower its resolution (two are the least): {places or 'none'}"
    )
    return "; ".join([text, *reasons])


def _words(node: fx.Node) -> str:
    return "the input" if node.op == "placeholder" else describe(node)


def discard(pieces: Pieces, count: int) -> Pieces:
    """The network without its first `count` runs."""
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < len(pieces.runs):
        raise ArrnError(
            f"skip_first must be a whole number from 0 to {len(pieces.runs) - 1}, since one of this network's "
            f"{len(pieces.runs)} residuals must stay; got {count!r}"
        )
    return replace(pieces, runs=pieces.runs[count:], features=pieces.features[count:])


def find_ladder(pieces: Pieces, grid: Grid, kernel: Kernel) -> tuple[Grid, ...]:
    """The grids of the residuals and of the base for inputs on `grid`.

    Raises:
        ArrnError: when the base would be left with a constant, with a size that would do; or when the head
            takes another grid.
    """
    ladder = _ladder(pieces, grid)
    if _holds(ladder, kernel):
        _check_head(pieces, ladder[-1])
        return ladder
    larger = [tuple(n * 2**k for n in grid) for k in range(1, 8)]
    enough = next((size for size in larger if _holds(_ladder(pieces, size), kernel)), None)
    advice = f"; {format_grid(enough)} would do" if enough else ""
    raise ArrnError(
        f"size {format_grid(grid)} is too small for this architecture, whose grids would be "
        f"{' -> '.join(map(format_grid, ladder))}: the base must hold more than a constant{advice}"
    )


def _check_head(pieces: Pieces, grid: Grid) -> None:
    width, end = output_shape(pieces.base, pieces.features[-2], grid)
    head = copy.deepcopy(pieces.head).to("meta").eval()
    dtype = next((parameter.dtype for parameter in head.parameters()), torch.get_default_dtype())
    try:
        head(torch.empty(2, width, *end, device="meta", dtype=dtype))
    except RuntimeError as error:
        raise ArrnError(
            f"the network's head does not take a base of {format_grid(end)}, which is what skip_first leaves: {error}"
        ) from error


def _ladder(pieces: Pieces, grid: Grid) -> tuple[Grid, ...]:
    ladder = [grid]
    for run, features in zip(pieces.runs, pieces.features, strict=False):
        ladder.append(output_shape(run, features, ladder[-1])[1])
    return tuple(ladder)


def _holds(ladder: tuple[Grid, ...], kernel: Kernel) -> bool:
    return len(set(ladder)) == len(ladder) and any(kernel.band(n) > 1 for n in ladder[-1])
