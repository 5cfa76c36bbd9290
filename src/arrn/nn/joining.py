"""For inference: a convolution with the sum and the ReLU behind it, in one kernel of cuDNN on NVIDIA GPUs."""

from __future__ import annotations

import operator
from typing import TypeVar, cast

import torch
import torch.nn.functional as F
from torch import fx, nn

from arrn.gpu.switch import is_fast
from arrn.nn.blocks import BasicBlock, Means
from arrn.nn.introspection import has_hooks

Module = TypeVar("Module", bound=nn.Module)

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)  # the types themselves: a subclass may do more than its class
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def join_activations(module: Module) -> Module:
    """Joins, in place, convolutions with the sum and the ReLU behind them, and means with the convolution behind them.

    Joined are the layers of an `nn.Sequential`, of a `BasicBlock` and of a traced graph. Where the operators of cuDNN
    do not apply, such as on a CPU, in training or through a compiler, the same layers run as before.

    Args:
        module: with folded norms (`fold_batch_norms`), which are identities between a convolution and its ReLU.
    """
    for name, part in list(module.named_modules()):
        if isinstance(part, fx.GraphModule):
            _join_graph(part)
        elif type(part) is BasicBlock and name and _is_folded(part):
            module.set_submodule(name, JoinedBlock(part))
        elif isinstance(part, nn.Sequential) and type(part).forward is nn.Sequential.forward:
            names = list(part._modules)
            for first, middle, last in zip(names, names[1:], names[2:], strict=False):
                convolution = part.get_submodule(first)
                if _is_plain(convolution) and _hands_on(part, middle) and _is_relu(part.get_submodule(last)):
                    part.set_submodule(first, ConvolutionReLU(convolution))
                    part.set_submodule(last, nn.Identity())
    return module


def _hands_on(owner: nn.Module, name: str) -> bool:
    layer = owner.get_submodule(name)
    return type(layer) is nn.Identity and not has_hooks(layer)


def _is_plain(layer: nn.Module) -> bool:
    """Whether the layer is a convolution that pads with zeros, or not at all, and does nothing else."""
    return (
        type(layer) in _CONVOLUTIONS
        and layer.padding_mode == "zeros"
        and isinstance(layer.padding, tuple)
        and not has_hooks(layer)
    )


def _is_relu(layer: nn.Module) -> bool:
    return type(layer) is nn.ReLU and not has_hooks(layer)


def _is_folded(block: BasicBlock) -> bool:
    kinds = [type(layer) for layer in block.body]
    expected = [kinds[0], nn.Identity, nn.ReLU, kinds[0], nn.Identity]
    layers = [*block.body, *block.shortcut, block.body, block.shortcut, block.activation, block]
    return kinds == expected and _is_plain(block.body[0]) and not any(map(has_hooks, layers))


def _joins(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether cuDNN's joined operators take `x`: images or volumes on an NVIDIA GPU, without gradients."""
    return (
        x.is_cuda
        and x.ndim in (4, 5)
        and x.dtype == weight.dtype
        and x.dtype in _FLOATS
        and x.numel() > 0
        and torch.version.cuda is not None
        and torch.backends.cudnn.enabled
        and is_fast()
        and not torch.compiler.is_compiling()
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cuda")
    )


class ConvolutionReLU(nn.Module):
    """relu(convolution(x)), or relu(convolution(x) + beside).

    Args:
        convolution: padded with zeros.

    Shape: that of the convolution; `beside` has its output's shape.

    >>> layer = ConvolutionReLU(nn.Conv2d(3, 4, 3, padding=1))
    >>> layer(torch.rand(2, 3, 5, 5), beside=torch.rand(2, 4, 5, 5)).shape
    torch.Size([2, 4, 5, 5])
    """

    def __init__(self, convolution: nn.Module) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, x: torch.Tensor, beside: torch.Tensor | None = None) -> torch.Tensor:
        convolution = self.convolution
        assert isinstance(convolution, _CONVOLUTIONS)
        weight, bias = convolution.weight, convolution.bias
        if _joins(x, weight):
            stride, dilation, groups = convolution.stride, convolution.dilation, convolution.groups
            padding = cast(tuple[int, ...], convolution.padding)
            if beside is None:
                return torch.cudnn_convolution_relu(x, weight, bias, stride, padding, dilation, groups)
            return torch.cudnn_convolution_add_relu(x, weight, beside, 1.0, bias, stride, padding, dilation, groups)
        y: torch.Tensor = convolution(x)
        return F.relu(y if beside is None else y + beside)


class JoinedBlock(nn.Module):
    """A `BasicBlock` with folded norms, in fewer kernels.

    Shape: that of the block.
    """

    def __init__(self, block: BasicBlock) -> None:
        super().__init__()
        self.enter, self.end = ConvolutionReLU(block.body[0]), ConvolutionReLU(block.body[3])
        layers = [layer for layer in block.shortcut if type(layer) is not nn.Identity]
        if len(layers) == 2 and isinstance(layers[0], Means) and _is_plain(layers[1]):
            layers = [MeansConvolution(layers[0], layers[1])]
        self.shortcut = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.end(self.enter(x), beside=self.shortcut(x))
        return answer


class MeansConvolution(nn.Module):
    """Means of neighbours, then a convolution of one sample: on a GPU one convolution as long as its stride.

    Shape: (batch, channels, *grid) -> (batch, features, *grid / stride, rounded up).
    """

    def __init__(self, means: Means, convolution: nn.Module) -> None:
        super().__init__()
        assert isinstance(convolution, _CONVOLUTIONS)
        self.means, self.convolution = means, convolution
        length = (means.stride,) * means.ndim
        spread = convolution.weight.expand(*convolution.weight.shape[:2], *length) / means.stride**means.ndim
        self.register_buffer("spread", spread.detach().contiguous(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stride = self.means.stride
        if _joins(x, self.get_buffer("spread")) and all(n % stride == 0 for n in x.shape[2:]):
            convolve = F.conv2d if x.ndim == 4 else F.conv3d
            return convolve(x, self.get_buffer("spread"), self.convolution.bias, stride)
        y: torch.Tensor = self.convolution(self.means(x))
        return y


def _join_graph(traced: fx.GraphModule) -> None:
    """Joins the convolutions of a traced network with a sum, if any, and the ReLU behind them."""
    modules: dict[str, nn.Module] = dict(traced.named_modules())

    def layer_of(node: object) -> nn.Module | None:
        named = isinstance(node, fx.Node) and node.op == "call_module"
        return modules[str(node.target)] if isinstance(node, fx.Node) and named else None

    def convolution_behind(node: object) -> fx.Node | None:
        """The convolution whose output `node` is, if nobody else reads the output."""
        while isinstance(layer_of(node), nn.Identity) and isinstance(node, fx.Node) and len(node.users) == 1:
            (node,) = node.all_input_nodes
        layer = layer_of(node)
        if layer is None or not isinstance(node, fx.Node) or not _is_plain(layer) or len(node.users) > 1:
            return None
        return node

    for node in list(traced.graph.nodes):
        layer = layer_of(node)
        if not (node.target in (F.relu, torch.relu) or (layer is not None and _is_relu(layer))):
            continue
        (source,) = node.all_input_nodes
        found, beside = convolution_behind(source), None
        is_sum = source.op == "call_function" and source.target in (operator.add, operator.iadd, torch.add)
        if is_sum and len(source.users) == 1 and len(source.all_input_nodes) == 2 and not source.kwargs:
            left, beside = source.all_input_nodes
            found = convolution_behind(left)
        if found is None:
            continue
        name = f"joined_{node.name}"
        traced.add_submodule(name, ConvolutionReLU(modules[str(found.target)]))
        with traced.graph.inserting_before(node):
            (x,) = found.all_input_nodes
            joined = traced.graph.call_module(name, (x,) if beside is None else (x, beside))
        node.replace_all_uses_with(joined)
        traced.graph.erase_node(node)
    traced.graph.eliminate_dead_code()
    traced.delete_all_unused_submodules()
    traced.recompile()
