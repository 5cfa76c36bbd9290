"""`Graph`: an ONNX graph that is written node by node; weights are stored once, branches see what lies around them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from arrn import __version__
from arrn.errors import ArrnError

OPSET, IR_VERSION = 20, 10
"""What the files ask of a reader: ONNX Runtime 1.17 and newer."""

Expansion: TypeAlias = Callable[["Graph", onnx.NodeProto, list[str]], str]
"""Writes what a node of another domain stands for, and returns the name of its answer."""

_WORTH_A_CAST = 256  # numbers

NUMBER_TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}


class Graph:
    """An ONNX graph in the making, or a branch of one. Values go by names that are made here.

    Args:
        outer: the graph that a branch lies in, whose values it sees.

    >>> graph = Graph()
    >>> answer = graph.op("Add", "x", graph.constant(np.float32(1)))
    >>> model = graph.model({"x": ("float32", [None])}, {"y": ("float32", [None])}, [answer])
    >>> [node.op_type for node in model.graph.node]
    ['Add', 'Identity']
    """

    def __init__(self, outer: Graph | None = None) -> None:
        self.outer = outer
        self.nodes: list[onnx.NodeProto] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._tensors: list[onnx.TensorProto] = []
        self._counts: dict[str, int] = {} if outer is None else outer._counts

    def _name(self, kind: str) -> str:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return f"{kind}_{self._counts[kind]}"

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output, whose name is returned."""
        (output,) = self.ops(kind, *inputs, count=1, **attributes)
        return output

    def ops(self, kind: str, *inputs: str, count: int, **attributes: Any) -> list[str]:
        """A node with `count` outputs, whose names are returned."""
        outputs = [self._name(kind.lower()) for _ in range(count)]
        self.nodes.append(helper.make_node(kind, list(inputs), outputs, **attributes))
        return outputs

    def constant(self, value: Any) -> str:
        """The name of a constant; the same numbers are stored once."""
        array = np.asarray(value)
        key = (array.dtype.str, array.shape, array.tobytes())
        place: Graph | None = self
        while place is not None:
            if key in place._constants:
                return place._constants[key]
            place = place.outer
        name = self._constants[key] = self._name("constant")
        self._tensors.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def whole(self, *values: int) -> str:
        """A constant of whole numbers along one axis, as shapes are."""
        return self.constant(np.array(values, np.int64))

    def scalar(self, value: int) -> str:
        """A whole number without axes."""
        return self.constant(np.array(value, np.int64))

    def choose(
        self, condition: str, then: Callable[[Graph], Sequence[str]], otherwise: Callable[[Graph], Sequence[str]]
    ) -> list[str]:
        """An `If`: what one of two branches gives, of which only that one runs."""
        branches = {}
        count = 0
        for attribute, write in (("then_branch", then), ("else_branch", otherwise)):
            inner = Graph(self)
            # What a branch gives must be its own: a value from around it goes through a node first.
            answers = [inner.op("Identity", name) for name in write(inner)]
            count = len(answers)
            outputs = [onnx.ValueInfoProto(name=name) for name in answers]
            branches[attribute] = helper.make_graph(inner.nodes, attribute, [], outputs, inner._tensors)
        return self.ops("If", condition, count=count, **branches)

    def splice(self, model: onnx.ModelProto, inputs: Sequence[str], expansions: Mapping[str, Expansion]) -> list[str]:
        """Writes all of another model here.

        Args:
            model: of one domain of operators, but for those in `expansions`.
            inputs: the values that it is given, in the order of its own.
            expansions: for kinds of nodes of other domains, what takes their place.

        Returns:
            The names of its outputs.
        """
        graph = model.graph
        stored = {tensor.name: tensor for tensor in graph.initializer}
        given = [value for value in graph.input if value.name not in stored]
        names = {"": ""} | {value.name: name for value, name in zip(given, inputs, strict=True)}
        for node in graph.node:
            if any(attribute.HasField("g") for attribute in node.attribute):
                raise ArrnError(
                    f"the network chooses operations by computed values ({node.op_type}): it cannot be exported"
                )
            for name in set(node.input) & set(stored) - set(names):  # only what is used is stored
                names[name] = self.constant(numpy_helper.to_array(stored[name]))
            taken = [names[name] for name in node.input]
            if node.op_type in expansions and node.domain:
                names[node.output[0]] = expansions[node.op_type](self, node, taken)
                continue
            fresh = [self._name(node.op_type.lower()) if name else "" for name in node.output]
            names |= dict(zip(node.output, fresh, strict=True))
            copied = helper.make_node(node.op_type, taken, fresh, domain=node.domain)
            copied.attribute.extend(node.attribute)
            self.nodes.append(copied)
        return [names[value.name] for value in graph.output]

    def model(
        self,
        inputs: Mapping[str, tuple[str, Sequence[str | int | None]]],
        outputs: Mapping[str, tuple[str, Sequence[str | int | None]]],
        answers: Sequence[str],
        properties: Mapping[str, str] | None = None,
    ) -> onnx.ModelProto:
        """The graph as a model.

        Args:
            inputs: names of values, each with its type and shape; a length is a number, a name or None.
            outputs: the names that `answers` get, with types and shapes.
            answers: values of this graph, in that order.
            properties: what the file says of itself.
        """
        for name, value in zip(outputs, answers, strict=True):
            self.nodes.append(helper.make_node("Identity", [value], [name]))
        taken, given = (
            [helper.make_tensor_value_info(name, NUMBER_TYPES[kind], shape) for name, (kind, shape) in values.items()]
            for values in (inputs, outputs)
        )
        graph = helper.make_graph(self.nodes, "arrn", taken, given, self._tensors)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="arrn",
            producer_version=__version__,
        )
        helper.set_model_props(model, dict(properties or {}))
        onnx.checker.check_model(model)
        return model


def store_in_half(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model in a smaller file: weights that half precision holds exactly are stored so, and cast as it loads.

    These are the weights of a network that was saved in half precision. Readers compute in float32 as before.
    """
    casts = []
    for tensor in model.graph.initializer:
        if tensor.data_type != TensorProto.FLOAT or math.prod(tensor.dims) < _WORTH_A_CAST:
            continue
        array = numpy_helper.to_array(tensor)
        with np.errstate(over="ignore"):
            half = array.astype(np.float16)
        if np.array_equal(half.astype(np.float32), array):
            name = tensor.name
            tensor.CopyFrom(numpy_helper.from_array(half, f"{name}_half"))
            casts.append(helper.make_node("Cast", [tensor.name], [name], to=TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.checker.check_model(model)
    return model


def array_of(value: Any) -> NDArray[Any]:
    """A tensor's numbers as an array in memory order."""
    return np.ascontiguousarray(value.detach().cpu().numpy())
