"""What a transplant changes in the layers it takes: padding, dropout, the classifier."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import fx, nn

from arrn.models.fixed import count_classes, fit_classes
from arrn.nn.blocks import ClassifierHead
from arrn.nn.layers import CONVOLUTIONS, FUNCTIONAL_CONVOLUTIONS, REPLICATE_CONVOLUTIONS, replicate_pad

Convolution: TypeAlias = nn.Conv1d | nn.Conv2d | nn.Conv3d

_CONSTANT_PADS: dict[type[nn.Module], type[nn.Module]] = {
    nn.ConstantPad1d: nn.ReplicationPad1d,
    nn.ConstantPad2d: nn.ReplicationPad2d,
    nn.ConstantPad3d: nn.ReplicationPad3d,
    nn.ZeroPad1d: nn.ReplicationPad1d,
    nn.ZeroPad2d: nn.ReplicationPad2d,
    nn.ZeroPad3d: nn.ReplicationPad3d,
}
_DROPOUTS = {F.dropout: nn.Dropout, F.dropout1d: nn.Dropout1d, F.dropout2d: nn.Dropout2d, F.dropout3d: nn.Dropout3d}
# Torch's functional layers are built in and have no signature to ask for.
_CONVOLUTION_ARGUMENTS = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_AVERAGE_ARGUMENTS = ("input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
_PAD_ARGUMENTS = ("input", "pad", "mode", "value")


def replicate_padding(traced: fx.GraphModule, ndim: int) -> None:
    """Rewrites, in place, every layer that pads one of the `ndim` axes of space with zeros.

    Convolutions and explicit padding repeat the edge samples instead; average pooling leaves the padding
    out of its mean; max pooling ignores its padding anyway. Layers inside modules that were kept whole are
    reached, functions called there are not: the constancy check finds those.
    """
    for name, module in list(traced.named_modules(remove_duplicate=False)):
        if isinstance(module, Convolution):
            _pad_convolution(module)
        elif isinstance(module, nn.AvgPool1d | nn.AvgPool2d | nn.AvgPool3d):
            module.count_include_pad = False
        elif type(module) in _CONSTANT_PADS and min(module.padding) >= 0:
            traced.set_submodule(name, _CONSTANT_PADS[type(module)](module.padding))
    for node in list(traced.graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in FUNCTIONAL_CONVOLUTIONS.values():
            _pad_functional_convolution(node)
        elif node.target in (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d):
            _set_arguments(node, _arguments(node, _AVERAGE_ARGUMENTS) | {"count_include_pad": False})
        elif node.target is F.pad:
            _pad_explicitly(node, ndim)
    traced.recompile()


def _pad_convolution(module: Convolution) -> None:
    if module.padding_mode != "zeros" or not any(module._reversed_padding_repeated_twice):
        return
    for ndim, kind in CONVOLUTIONS.items():
        if type(module) is kind:  # a change of class keeps weights, flags and hooks as they are
            module.__class__ = REPLICATE_CONVOLUTIONS[ndim]
            return
    module.padding_mode = "replicate"  # what torch's own forward asks for; a subclass may call it


def _pad_functional_convolution(node: fx.Node) -> None:
    values = _arguments(node, _CONVOLUTION_ARGUMENTS)
    (ndim,) = (n for n, function in FUNCTIONAL_CONVOLUTIONS.items() if function is node.target)
    padding = values.get("padding", 0)
    amounts = [padding] * ndim if isinstance(padding, int) else padding
    if not isinstance(amounts, Sequence) or not all(isinstance(n, int) for n in amounts) or not any(amounts):
        return
    with node.graph.inserting_before(node):
        around = [n for n in reversed(amounts) for _ in range(2)]
        padded = node.graph.call_function(replicate_pad, (values["input"], around))
    padded.meta = dict(node.meta)
    _set_arguments(node, values | {"input": padded, "padding": 0})


def _pad_explicitly(node: fx.Node, ndim: int) -> None:
    values = _arguments(node, _PAD_ARGUMENTS)
    amounts = values["pad"]
    if values.get("mode", "constant") != "constant" or not all(isinstance(n, int) and n >= 0 for n in amounts):
        return
    space, rest = amounts[: 2 * ndim], amounts[2 * ndim :]
    if any(rest) or not any(space):  # zeros as new channels keep a constant constant
        return
    node.target = replicate_pad
    node.args, node.kwargs = (values["input"], [*space, *[0] * (2 * ndim - len(space))]), {}


def _arguments(node: fx.Node, names: tuple[str, ...]) -> dict[str, Any]:
    return dict(zip(names, node.args, strict=False)) | dict(node.kwargs)


def _set_arguments(node: fx.Node, values: dict[str, Any]) -> None:
    node.args, node.kwargs = (values.pop("input"),), values


def dropout_as_layers(traced: fx.GraphModule) -> None:
    """Makes dropout that was called as a function a layer: tracing has settled its `training` as False."""
    for node in list(traced.graph.nodes):
        if node.op != "call_function" or node.target not in _DROPOUTS:
            continue
        values = inspect.signature(node.target).bind(*node.args, **node.kwargs)
        values.apply_defaults()
        if values.arguments["training"] is not False:
            continue
        layer = _DROPOUTS[node.target](values.arguments["p"])
        layer.training = traced.training
        name = f"{node.name}_layer"
        traced.add_submodule(name, layer)
        with traced.graph.inserting_before(node):
            fresh = traced.graph.call_module(name, (values.arguments["input"],))
        fresh.meta = dict(node.meta)
        node.replace_all_uses_with(fresh)
        traced.graph.erase_node(node)
    traced.recompile()


class ChannelDropout(nn.Dropout):
    """Drops whole channels of a signal: element-wise dropout would make a constant signal vary over space.

    Shape: (batch, channels, *anything), unchanged.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ones = x.new_ones(*x.shape[:2], *[1] * (x.ndim - 2))
        return x * F.dropout(ones, self.p, self.training)


def drop_whole_channels(run: nn.Module) -> None:
    """Replaces, in place, element-wise dropout by `ChannelDropout`, at the same rate."""
    for name, module in list(run.named_modules(remove_duplicate=False)):
        if type(module) is nn.Dropout:
            fresh = ChannelDropout(module.p)
            fresh.training = module.training
            run.set_submodule(name, fresh)


class SourceHead(ClassifierHead):
    """A network's own pooling and classifier, with its weights; the classifier is the last linear layer.

    Shape: (batch, features, *space) -> what the source gave.
    """

    def __init__(self, layers: nn.Module, features: int) -> None:
        super().__init__()
        self.features = features
        self.layers = layers
        self.num_classes = count_classes(layers)

    def reset_classifier(self, num_classes: int) -> None:
        fit_classes(self.layers, num_classes)
        self.num_classes = num_classes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.layers(x)
        return answer
