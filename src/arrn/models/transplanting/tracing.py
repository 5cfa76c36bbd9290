"""Tracing: a network as a `torch.fx` graph, with what cannot be traced kept whole, as single nodes."""

from __future__ import annotations

import builtins
import contextlib
import re
import traceback
from collections import OrderedDict
from collections.abc import Callable, Container, Iterator, Mapping
from types import FunctionType
from typing import Any

import torch.nn.functional as F
from torch import fx, nn

from arrn.errors import ArrnError, first_line

_PREFIX = "network"
# Layers that others look for by type, also when subclassed: norms to freeze, the classifier, an identity where a
# classifier was.
_KEPT = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.GroupNorm, nn.LayerNorm, nn.Linear, nn.Identity)

# Norms of single samples: by function, and by class, which may be anybody's own.
_SAMPLE_NORMS = {F.layer_norm, F.group_norm, F.instance_norm, F.rms_norm}
_SAMPLE_NORM_NAMES = re.compile(r"(?<!batch)(layer|group|instance|rms)norm", re.IGNORECASE)


def trace(network: nn.Module, layers: Container[str] = ()) -> tuple[fx.GraphModule, dict[str, str]]:
    """The network as a graph, in evaluation mode, sharing its modules.

    Args:
        network: the network.
        layers: paths of its modules that are not looked into, next to the layers of torch.

    Returns:
        The graph, whose nodes name the network's own layers; and, for each module that could not be
        traced and is one node of it, the reason.

    Raises:
        ArrnError: when the network's own forward cannot be traced.
    """
    mode = network.training
    wrapper, tracer = _OneInput(network), _RecoveringTracer(layers)
    modes = {module: module.training for module in network.modules()}
    wrapper.eval()
    try:
        with _recorded_lengths(network):
            graph = tracer.trace(wrapper)
    finally:
        for module, training in modes.items():
            module.training = training
    if _PREFIX in tracer.kept_whole:
        raise ArrnError(
            f"the forward of this {type(network).__name__} cannot be traced, so there is nowhere to cut it: "
            f"{tracer.kept_whole[_PREFIX]}"
        )
    for name, value in vars(wrapper).items():  # tensors that forward makes on the fly
        if name.startswith("_tensor_constant"):
            setattr(network, name, value)
    for node in graph.nodes:
        if node.op in ("call_module", "get_attr"):
            node.target = _own_path(node.target)
    traced = fx.GraphModule(network, graph, type(network).__name__)
    traced.training = mode
    return traced, {_own_path(path): why for path, why in tracer.kept_whole.items()}


class _OneInput(nn.Module):
    """Calls a network with its input alone: other arguments keep their defaults, and are not traced."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Any) -> Any:
        return self.network(x)


class _RecoveringTracer(fx.Tracer):
    """A tracer that takes a module as one opaque layer when it is told to, or when its code cannot be traced.

    Code that branches on the values or the shape of its input cannot. The innermost such module is
    kept whole; all around it is traced.
    """

    def __init__(self, layers: Container[str]) -> None:
        super().__init__()
        self.layers = layers
        self.kept_whole: dict[str, str] = {}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if module_qualified_name == _PREFIX:
            return False  # the network itself: as one layer there would be nothing to cut
        own = _own_path(module_qualified_name)
        return own in self.layers or isinstance(m, _KEPT) or super().is_leaf_module(m, module_qualified_name)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        known, stack = set(self.graph.nodes), OrderedDict(self.module_stack)
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception as error:  # whatever the module's own code raises when it is given a stand-in
            self.module_stack = stack
            for node in reversed(self.graph.nodes):
                if node not in known:
                    self.graph.erase_node(node)
            path = self.path_of_module(m)
            self.kept_whole[path] = _reason(error)
            return self.create_proxy("call_module", path, args, kwargs)


# Functions of torch that make a tensor from a size: given a size that is read off the input, they cannot be recorded.
_FACTORY = re.compile(r"\btorch\.(zeros|ones|empty|full|rand|randn|randint|randperm|arange|linspace|eye)\(")


def _reason(error: Exception) -> str:
    """What went wrong, in which line of the network's own code, and what to write instead."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/torch/" not in f.filename.replace("\\", "/")]
    own = [f for f in frames if f.filename != __file__]
    line = (own[-1].line or "") if own else ""
    where = f" at {own[-1].filename}:{own[-1].lineno}, `{line}`" if own else ""
    said = f"{without_proxies(first_line(error))}{where}"
    if isinstance(error, fx.proxy.TraceError):
        return f"{said}; put what branches on its input into a module of its own"
    if isinstance(error, TypeError) and (made := _FACTORY.search(line)):
        name = made[1]
        instead = f"x.new_{name}(...)" if name in ("zeros", "ones", "empty", "full") else "a method of a tensor"
        return (
            f"torch.fx cannot record torch.{name}() with a size that is read off the input{where}; use {instead}, "
            "which it records, or put this line into a module of its own"
        )
    return f"{said}; put what cannot be traced into a module of its own"


def without_proxies(message: str, values: Mapping[str, object] | None = None) -> str:
    """A message without the stand-ins of `torch.fx`: their values where they are known, by the names of their nodes.

    >>> without_proxies("expected 224 but got Proxy(getitem_2)!", {"getitem_2": 64})
    'expected 224 but got 64!'
    >>> without_proxies("int() argument must be a real number, not 'Proxy'")
    'int() argument must be a real number, not a value that the input decides'
    """
    known, unknown = values or {}, "a value that the input decides"
    message = re.sub(r"Proxy\((\w+)\)", lambda found: str(known.get(found[1], unknown)), message)
    return re.sub(r"'Proxy'|\bProxy\b", unknown, message)


@contextlib.contextmanager
def _recorded_lengths(network: nn.Module) -> Iterator[None]:
    """Within it, ``len(x)`` in the code of the network's classes is recorded where x is being traced.

    As `torch.fx.wrap("len")` in their files would do, which a user cannot add to somebody else's network.
    """
    classes = {kind for module in network.modules() for kind in type(module).__mro__}
    functions = [value for kind in classes for value in vars(kind).values() if isinstance(value, FunctionType)]
    patched: list[dict[str, Any]] = []
    try:
        for names in (function.__globals__ for function in functions):
            if "len" not in names:
                names["len"] = _length
                patched.append(names)
        yield
    finally:
        for names in patched:
            del names["len"]


def _length(value: Any) -> Any:
    if isinstance(value, fx.Proxy):
        return value.tracer.create_proxy("call_function", builtins.len, (value,), {})
    return builtins.len(value)


def _own_path(path: str) -> str:
    """A path as the network, not the wrapper around it, has it; "" is the network itself."""
    return path.removeprefix(_PREFIX).removeprefix(".")


def calls_around(node: fx.Node) -> dict[str, str]:
    """The calls within which a node is made, from the network's own on: the path of the module, for each call a key."""
    return {call: _own_path(path) for call, (path, _) in node.meta.get("nn_module_stack", {}).items()}


def norms_samples(traced: fx.GraphModule) -> bool:
    """Whether norms of single samples, such as a layer norm, stand in a traced network."""
    kinds = {kind for module in traced.modules() for kind in type(module).__mro__}
    for node in traced.graph.nodes:
        if node.target in _SAMPLE_NORMS:
            return True
        kinds |= {kind for _, kind in node.meta.get("nn_module_stack", {}).values()}
    return any(_SAMPLE_NORM_NAMES.search(kind.__name__) for kind in kinds)


def describe(node: fx.Node) -> str:
    """A node in words that a user can find in the network: the layer, or the function and where it is called."""
    if node.op == "call_module":
        return f"layer {node.target!r}"
    *_, module = ["", *calls_around(node).values()]
    place = f" in {module!r}" if module else " in its forward"
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    return f"{name}(){place}"
