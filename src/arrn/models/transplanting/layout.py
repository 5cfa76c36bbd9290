"""The layout of a traced network: where in its graph one signal is alive alone, and where the resolution falls."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from arrn.errors import ArrnError
from arrn.models.transplanting.tracing import calls_around, describe, trace, without_proxies
from arrn.signal.grid import Grid, format_grid

_BATCH, _OTHER_BATCH = 2, 3
# Strides round; over this many more samples that makes no difference to the growth.
_MORE = 1024
# What is left of a resolution makes a lower one below this: a stride leaves a half or less.
LOWER = 3 / 4


@dataclass(frozen=True, kw_only=True)
class Point:
    """A place in the graph where one signal is all that later layers need.

    Attributes:
        node: what gives the signal.
        index: the last node before the place, in the graph's order.
        channels, grid: the signal's shape at the wanted size.
        growth: samples gained along each axis per sample gained by the input: 1/2 after one stride of 2.
    """

    node: fx.Node
    index: int
    channels: int
    grid: Grid
    growth: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What two sizes tell about a graph.

    Attributes:
        points: every place where a single tensor is alive and is a signal, from the input on.
        growth: of every signal, alive alone or not; see `Point`.
        alive: for each node, the tensors that are still needed once it has run.
        counts: nodes that give whole numbers (sizes read off a tensor): the number, None for the batch's size.
        one_size: the first layer on space that works at the wanted size only, in words, if there is one.
    """

    points: list[Point]
    growth: dict[fx.Node, tuple[float, ...]]
    alive: list[set[fx.Node]]
    counts: dict[fx.Node, int | None]
    one_size: str | None

    def lowers(self, node: fx.Node) -> bool:
        """Whether a node gives a signal of lower resolution than one that it takes."""
        taken = [self.growth[source] for source in node.all_input_nodes if source in self.growth]
        return node in self.growth and any(share_left(growth, self.growth[node]) < LOWER for growth in taken)


def share_left(before: Sequence[float], after: Sequence[float]) -> float:
    """How much of a resolution is left, along the axis that loses most; both as `Point.growth`."""
    return min(b / a for a, b in zip(before, after, strict=True))


def find_layout(traced: fx.GraphModule, channels: int, grid: Grid) -> Layout:
    """Runs the graph on meta tensors and reads its layout; nodes that only read sizes are moved first.

    Raises:
        ArrnError: when the network fails at this size, naming the layer.
    """
    bare = copy.deepcopy(traced).to("meta").eval()

    def run(batch: int, *, more: int = 0, strict: bool = False) -> _Probe:
        probe = _Probe(bare, strict)
        with torch.device("meta"):  # what the network makes for itself has no numbers either
            probe.run(_empty_input(bare, batch, channels, tuple(n + more for n in grid)))
        return probe

    here, there, wider = run(_BATCH, strict=True), run(_BATCH, more=_MORE), run(_OTHER_BATCH)
    counts = {
        node: None if (here.counts[node.name], wider.counts.get(node.name)) == (_BATCH, _OTHER_BATCH) else count
        for node in traced.graph.nodes
        if (count := here.counts.get(node.name)) is not None
        and (count == wider.counts.get(node.name) or count == _BATCH)
    }
    _read_sizes_early(traced, counts, {node for node in traced.graph.nodes if node.name in here.tuples})
    nodes = list(traced.graph.nodes)
    alive = _alive_after(nodes, counts)
    growth = {}
    for node in nodes:
        a, b = here.shapes.get(node.name, ()), there.shapes.get(node.name, ())
        if len(a) == len(b) == len(grid) + 2 and a[:2] == b[:2] and a[0] == _BATCH:
            gain = tuple((n - m) / _MORE for m, n in zip(a[2:], b[2:], strict=True))
            if min(gain) > 0:
                growth[node] = gain
    points = []
    for index, live in enumerate(alive):
        if nodes[index] in counts:
            continue  # a cut before it lets the next piece read the size off its own signal
        if len(live) == 1 and live <= growth.keys():
            (node,) = live
            _, width, *space = here.shapes[node.name]
            points.append(Point(node=node, index=index, channels=width, grid=tuple(space), growth=growth[node]))
    fixed = next((n for n in nodes if n.name in there.failures and len(here.shapes.get(n.name, ())) > 2), None)
    one_size = None
    if fixed is not None:
        larger = format_grid(tuple(n + _MORE for n in grid))
        one_size = f"{describe(fixed)} works at {format_grid(grid)} but not at {larger}"
    return Layout(points=points, growth=growth, alive=alive, counts=counts, one_size=one_size)


class _Probe(fx.Interpreter):
    """Runs a graph without numbers; notes shapes, whole numbers, tuples of those and failures, by nodes' names."""

    def __init__(self, bare: fx.GraphModule, strict: bool) -> None:
        super().__init__(bare)
        self.extra_traceback = False  # our own message is enough
        self.strict = strict
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.counts: dict[str, int] = {}
        self.tuples: set[str] = set()
        self.failures: set[str] = set()

    def run_node(self, n: fx.Node) -> Any:
        if any(isinstance(self.env.get(source), _Unknown) for source in n.all_input_nodes):
            return _Unknown()
        try:
            with torch.no_grad():
                value = super().run_node(n)
        except Exception as error:  # whatever the network's own layers raise
            if not self.strict:
                self.failures.add(n.name)
                return _Unknown()
            source = next((s.name for s in n.all_input_nodes if s.name in self.shapes), None)
            shape = f" on an input of shape {self.shapes[source]}" if source else ""
            said = without_proxies(str(error), self.counts)
            raise ArrnError(f"the network fails at this size, in {describe(n)}{shape}: {said}") from error
        if isinstance(value, torch.Tensor):
            self.shapes[n.name] = tuple(value.shape)
        elif isinstance(value, int) and not isinstance(value, bool):
            self.counts[n.name] = value
        elif isinstance(value, tuple) and all(isinstance(number, int) for number in value):
            self.tuples.add(n.name)
        return value


class _Unknown:
    """The value of a node that failed, and of all that depend on it."""


def _read_sizes_early(traced: fx.GraphModule, counts: Container[fx.Node], shapes: Container[fx.Node]) -> None:
    """Moves, in place, every node that only reads sizes directly behind what it reads.

    ``y.view(x.size(0), -1)`` at the end of a network would otherwise make x look like a skip connection
    over all of it.

    Args:
        traced: the graph.
        counts: nodes that give whole numbers, which need not be kept alive.
        shapes: nodes that give tuples of whole numbers; moved where nothing but counts is taken from them.
    """
    reading: set[fx.Node] = set()
    for node in reversed(traced.graph.nodes):
        taken_apart = node in shapes and bool(node.users) and reading.issuperset(node.users)
        if node.all_input_nodes and (node in counts or taken_apart):
            reading.add(node)
    for node in [node for node in traced.graph.nodes if node in reading]:
        max(node.all_input_nodes).append(node)  # nodes compare by their place in the graph
    traced.recompile()


def _alive_after(nodes: list[fx.Node], counts: dict[fx.Node, int | None]) -> list[set[fx.Node]]:
    """For each node, which values that depend on the input are still needed once it has run.

    Counts are not: the batch's size can be read off any signal, and the others are known. Nor is what they
    are read from, if only they need it: `_read_sizes_early` has put them directly behind it.
    """
    position = {node: n for n, node in enumerate(nodes)}
    varying: set[fx.Node] = set()
    alive: list[set[fx.Node]] = []
    live: set[fx.Node] = set()
    for index, node in enumerate(nodes):
        if node.op == "placeholder" or any(source in varying for source in node.all_input_nodes):
            varying.add(node)
            if node not in counts:
                live = live | {node}
        live = {value for value in live if any(position[user] > index for user in value.users)}
        alive.append(live)
    return alive


def runs_bare(bare: nn.Module, channels: int, grid: Grid) -> bool:
    """Whether a network on the meta device takes inputs of so many channels."""
    try:
        with torch.no_grad(), torch.device("meta"):
            bare(_empty_input(bare, _BATCH, channels, grid))
    except Exception:  # whatever the network's own layers raise
        return False
    return True


def _empty_input(bare: nn.Module, batch: int, channels: int, grid: Grid) -> torch.Tensor:
    dtype = next((p.dtype for p in bare.parameters()), torch.get_default_dtype())
    return torch.empty(batch, channels, *grid, device="meta", dtype=dtype)


def trace_resolutions(network: nn.Module, channels: int, grid: Grid) -> tuple[fx.GraphModule, dict[str, str]]:
    """The network as a graph, as `trace` gives it, in which every fall of the resolution shows.

    Modules whose code asks whether it is training, for dropout say, stay whole, since a trace would settle the answer;
    but not those in which the resolution falls more than once.
    """
    traced, untraceable = trace(network)
    layers = {str(node.target) for node in traced.graph.nodes if node.op == "call_module"} - untraceable.keys()
    asking = {path for path, m in network.named_modules() if path and path not in layers and _asks_for_mode(m)}
    if not asking:
        return traced, untraceable
    layout = find_layout(traced, channels, grid)
    traced_through = set()
    for path, nodes in _calls(traced, asking):
        partial = any(f"{stuck}.".startswith(f"{path}.") for stuck in untraceable)
        if _hides_resolutions(nodes, layout, partial):
            traced_through.add(path)
    return trace(network, asking - traced_through)


def _asks_for_mode(module: nn.Module) -> bool:
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return code is not None and "training" in code.co_names


def _calls(traced: fx.GraphModule, paths: Container[str]) -> list[tuple[str, set[fx.Node]]]:
    """Every call of one of the modules: its path and the nodes that the call makes."""
    calls: dict[tuple[str, str], set[fx.Node]] = {}
    for node in traced.graph.nodes:
        around = calls_around(node)
        if node.op == "call_module":  # a module that could not be traced is not among the calls around its own node
            around[node.name] = str(node.target)
        for call, path in around.items():
            if path in paths:
                calls.setdefault((path, call), set()).add(node)
    return [(path, nodes) for (path, _), nodes in calls.items()]


def _hides_resolutions(call: set[fx.Node], layout: Layout, partial: bool) -> bool:
    """Whether a call lowers the resolution more than once; where the signal ends, as in a head, counts as once.

    Args:
        call: the nodes that the call makes.
        layout: of the graph they are in.
        partial: some of what is called could not be traced. If the signal ends there, tracing is tried again,
            so that the reason is known.
    """
    entering = {source for node in call for source in node.all_input_nodes} - call
    leaving = {node for node in call if not call.issuperset(node.users)}
    ends = not entering.isdisjoint(layout.growth) and leaving.isdisjoint(layout.growth)
    lowering = sum(layout.lowers(node) for node in call)
    return lowering > 1 or (ends and (lowering == 1 or partial))
