"""Reading sizes where they arise, so that a size which is asked for late keeps nothing else alive."""

from __future__ import annotations

from collections.abc import Container

from torch import fx

__all__ = ["read_sizes_early"]


def read_sizes_early(traced: fx.GraphModule, counts: Container[fx.Node], shapes: Container[fx.Node]) -> None:
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
