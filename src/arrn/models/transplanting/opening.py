"""Deciding which modules that ask for `self.training` are looked into.

Tracing settles such questions for good, as in evaluation mode, so a module that asks is better kept
whole; but one that hides resolutions must be opened, or there is nothing to cut. What it does to the
resolution is seen where all are open: it may stride by layers or by functions.
"""

from __future__ import annotations

import inspect
from collections.abc import Container

from torch import fx, nn

from arrn.models.transplanting.layout import Layout, find_layout
from arrn.models.transplanting.tracing import calls_around, trace
from arrn.signal.grid import Grid

__all__ = ["trace_resolutions"]


def trace_resolutions(network: nn.Module, channels: int, grid: Grid) -> tuple[fx.GraphModule, dict[str, str]]:
    """The network as a graph (see `trace`) in which no module that asks for its mode hides resolutions."""
    traced, untraceable = trace(network)
    layers = {str(node.target) for node in traced.graph.nodes if node.op == "call_module"} - untraceable.keys()
    asking = {path for path, m in network.named_modules() if path and path not in layers and _asks_for_mode(m)}
    if not asking:
        return traced, untraceable
    layout = find_layout(traced, channels, grid)
    opened = set()
    for path, nodes in _calls(traced, asking):
        partial = any(f"{stuck}.".startswith(f"{path}.") for stuck in untraceable)
        if _hides_resolutions(nodes, layout, partial):
            opened.add(path)
    return trace(network, asking - opened)


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
