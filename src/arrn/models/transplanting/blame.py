"""Finding the layer or the function that makes a run's answer to zero vary over space."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import fx

from arrn.models.transplanting.tracing import describe
from arrn.nn.constancy import TOLERANCE, made_like, probe_of, variation, zero_sample
from arrn.signal.grid import Grid

__all__ = ["find_varying_node"]


def find_varying_node(run: fx.GraphModule, features: int, grid: Grid) -> str:
    """The first node, in words, that turns constant inputs into an output that varies over space.

    The constancy check names submodules; a traced network also calls functions, such as the addition
    of a position embedding.
    """
    for training in (True, False):
        probe, x, _ = probe_of(run, features, grid, seed=0, training=training)
        watch = _Watch(cast(fx.GraphModule, probe))
        with torch.no_grad(), torch.random.fork_rng(devices=[]), made_like(x):
            watch.run(x)
        if watch.culprit is not None:
            return describe(watch.culprit)
    return "several layers together"


class _Watch(fx.Interpreter):
    """Runs a graph and remembers the first node that made something vary; weights may vary as they like."""

    def __init__(self, probe: fx.GraphModule) -> None:
        super().__init__(probe)
        self.signals: set[fx.Node] = set()
        self.varying: set[fx.Node] = set()
        self.culprit: fx.Node | None = None

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.op == "placeholder" or any(source in self.signals for source in n.all_input_nodes):
            self.signals.add(n)
            tensor = isinstance(value, torch.Tensor) and value.is_floating_point()
            if tensor and variation(zero_sample(value)) > TOLERANCE:
                self.varying.add(n)
                if self.culprit is None and not any(source in self.varying for source in n.all_input_nodes):
                    self.culprit = n
        return value
