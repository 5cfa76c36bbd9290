"""Dropout inside transplanted networks: kept switchable, and constant over space within residuals."""

from __future__ import annotations

import inspect

import torch
import torch.nn.functional as F
from torch import fx, nn

__all__ = ["ChannelDropout", "drop_whole_channels", "dropout_as_layers"]

_LAYERS = {
    F.dropout: nn.Dropout,
    F.dropout1d: nn.Dropout1d,
    F.dropout2d: nn.Dropout2d,
    F.dropout3d: nn.Dropout3d,
}


class ChannelDropout(nn.Dropout):
    """Drops whole channels of a signal: element-wise dropout would make a constant signal vary over space.

    Shape: (batch, channels, *anything), unchanged.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ones = x.new_ones(*x.shape[:2], *[1] * (x.ndim - 2))
        return x * F.dropout(ones, self.p, self.training)


def dropout_as_layers(traced: fx.GraphModule) -> None:
    """Makes dropout that was called as a function a layer: tracing has settled its `training` as False."""
    for node in list(traced.graph.nodes):
        if node.op != "call_function" or node.target not in _LAYERS:
            continue
        values = inspect.signature(node.target).bind(*node.args, **node.kwargs)
        values.apply_defaults()
        if values.arguments["training"] is not False:
            continue
        layer = _LAYERS[node.target](values.arguments["p"])
        layer.training = traced.training
        name = f"{node.name}_layer"
        traced.add_submodule(name, layer)
        with traced.graph.inserting_before(node):
            fresh = traced.graph.call_module(name, (values.arguments["input"],))
        fresh.meta = dict(node.meta)
        node.replace_all_uses_with(fresh)
        traced.graph.erase_node(node)
    traced.recompile()


def drop_whole_channels(run: nn.Module) -> None:
    """Replaces, in place, element-wise dropout by `ChannelDropout`, at the same rate."""
    for name, module in list(run.named_modules(remove_duplicate=False)):
        if type(module) is nn.Dropout:
            fresh = ChannelDropout(module.p)
            fresh.training = module.training
            run.set_submodule(name, fresh)
