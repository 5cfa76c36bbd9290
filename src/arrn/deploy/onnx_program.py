"""Networks as ONNX files: one for a level, and one for all levels that chooses among them when it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from torch import nn

from arrn.deploy.onnx_graph import Graph
from arrn.deploy.onnx_resampling import resample_between, resample_to, takes_any_size
from arrn.deploy.parts import Parts
from arrn.deploy.torch_programs import quietly
from arrn.errors import ArrnError, first_line
from arrn.nn.junctions import VectorJunction
from arrn.nn.layers import Resampling
from arrn.signal.grid import Grid, format_grid
from arrn.signal.kernels import WhittakerShannon

INPUT, LEVEL = "signal", "level"
"""The names of a file's input, and of the number of the level that ran."""

SPACE = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}
"""What lengths of inputs are called."""

_DOMAIN, _MARK, _FOUND = "arrn", "Resample", "Found"


class _MarkedResampling(Resampling):
    """Leaves a mark in the exported graph, where `resample_between` then writes the resampling."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = torch.onnx.ops.symbolic(
            f"{_DOMAIN}::{_MARK}",
            (x,),
            {"source": list(self.source), "target": list(self.target)},
            dtype=x.dtype,
            shape=(*x.shape[:2], *self.target),
            version=1,
        )
        return answer


class _MarkedJunction(VectorJunction):
    """Leaves a mark for what its network finds in the signal, where `OnnxPrograms` then writes the network."""

    def __init__(self, junction: VectorJunction, level: int) -> None:
        super().__init__(nn.Sequential(), junction.channels, junction.features, junction.next_size)
        self.level = level

    def find(self, r: torch.Tensor, maps: list[torch.Tensor] | None = None) -> torch.Tensor:
        k = self.channels
        answer: torch.Tensor = torch.onnx.ops.symbolic(
            f"{_DOMAIN}::{_FOUND}",
            (r[:, :k], r[:, k : k + 1]),  # the signal, and the gate above
            {"level": self.level},
            dtype=r.dtype,
            shape=(r.shape[0], self.features),
            version=1,
        )
        return answer


class _Finding(nn.Module):
    """What a `VectorJunction` finds in a signal, shape (batch, channels, *grid) -> (batch, features)."""

    def __init__(self, junction: VectorJunction) -> None:
        super().__init__()
        self.junction = junction

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.junction.find(x)


class OnnxPrograms:
    """Writes a network's ONNX files. Its parts are exported once and put together anew for each file.

    Args:
        parts: the network.
        levels: those that files are wanted of, highest first.
    """

    def __init__(self, parts: Parts, levels: Sequence[int]) -> None:
        self.parts, self.chosen = parts, tuple(levels)
        mark_resampling(parts)
        self._top = self.chosen[0]
        self._found = {
            n: export_part(_Finding(junction).eval(), (junction.channels, *parts.grids[n]))
            for n, junction in mark_junctions(parts).items()
            if n >= self._top
        }
        self._levels = {
            n: export_part(level, _input_of(level)) for n, level in enumerate(parts.levels) if n >= self._top
        }
        features = len(parts.entrances[-1].weight)
        self._tail = export_part(parts.tail, (features, *parts.grids[-1]))

    @property
    def any_size(self) -> bool:
        """Whether the files take inputs of any size; otherwise those on a level's own grid."""
        return takes_any_size(self.parts.kernel)

    def level_file(self, level: int) -> onnx.ModelProto:
        """The model of one level: inputs are taken to its grid, and run from there down."""
        graph, x = Graph(), INPUT
        if self.any_size:
            x = resample_to(graph, x, graph.whole(*self.parts.grids[level]), self.parts.ndim, self._kernel)
        elif not all(map(self.parts.kernel.keeps, self.parts.grids[level])):
            grid = self.parts.grids[level]
            x = resample_between(graph, x, grid, grid, self.parts.kernel)
        r = self._enter(graph, x, level)
        for n in range(level, len(self.parts.grids) - 1):
            r = self._run_level(graph, r, n, entered=n == level)
        answer = self._run_tail(graph, r, entered=level == len(self.parts.grids) - 1)
        return self._model(graph, [answer], None if self.any_size else self.parts.grids[level])

    def any_size_file(self) -> onnx.ModelProto:
        """The model of all levels: the size of its input picks the level, and levels above that one do not run.

        Each level is a branch that runs where the input entered at or above it. Its second output is the number of
        the level, counted among all of the network's from the highest.
        """
        parts, graph = self.parts, Graph()
        for weight in self._shared_weights():
            graph.constant(weight)  # branches take it from here
        shape = graph.op("Shape", INPUT)
        size = graph.op("Slice", shape, graph.whole(2), graph.whole(2 + parts.ndim))
        level = self._pick(graph, size)
        grids = graph.constant(np.array(parts.grids, np.int64))
        x = resample_to(graph, INPUT, graph.op("Gather", grids, level), parts.ndim, self._kernel)
        r = graph.constant(np.zeros((0, 1, *[1] * parts.ndim), np.float32))  # what no branch looks at
        for n in range(self._top, len(parts.grids)):
            r = self._arrive(graph, x, r, level, n)
            if n < len(parts.grids) - 1:
                reached = graph.op("LessOrEqual", level, graph.scalar(n))
                (r,) = graph.choose(
                    reached,
                    lambda inner, r=r, n=n: [self._run_level(inner, r, n)],  # type: ignore[misc]
                    lambda inner, r=r: [r],  # type: ignore[misc]
                )
        return self._model(graph, [self._run_tail(graph, r), level], None)

    @property
    def _kernel(self) -> WhittakerShannon:
        return cast(WhittakerShannon, self.parts.kernel)

    def _pick(self, graph: Graph, size: str) -> str:
        """The level of an input of that size, as `ARRN.level` has it."""
        grids = graph.constant(np.array([self.parts.grids[n] for n in self.chosen], np.int64))
        zero = graph.scalar(0)
        exact = self.parts.policy == "exact"
        fits = graph.op("GreaterOrEqual", grids, size) if exact else graph.op("Greater", grids, size)
        numbers = graph.op("Cast", fits, to=7)
        # Exact: how many grids hold the input, of which the last is the lowest. Cheap: how many are finer somewhere.
        along = graph.op("ReduceMin" if exact else "ReduceMax", numbers, graph.whole(1), keepdims=0)
        count = graph.op("ReduceSum", along, keepdims=0)
        if exact:
            place = graph.op("Max", graph.op("Sub", count, graph.scalar(1)), zero)
        else:
            place = graph.op("Min", count, graph.scalar(len(self.chosen) - 1))
        return graph.op("Gather", graph.whole(*self.chosen), place)

    def _arrive(self, graph: Graph, x: str, r: str, level: str, n: int) -> str:
        """What reaches level `n`: the input, if it enters there, or what comes from above."""
        if n not in self.chosen:
            return r
        if n == self._top and len(self.chosen) == 1:
            return self._enter(graph, x, n)
        here = graph.op("Equal", level, graph.scalar(n))
        (arrived,) = graph.choose(here, lambda inner: [self._enter(inner, x, n)], lambda inner: [r])
        return arrived

    def _enter(self, graph: Graph, x: str, level: int) -> str:
        entrance = self.parts.entrances[level]
        weight = entrance.weight.reshape(*entrance.weight.shape, *[1] * self.parts.ndim)
        name = entrance_name(self.parts.grids[level])
        return graph.op("Conv", x, graph.constant(weight), graph.constant(entrance.shift), name=name)

    def _run_level(self, graph: Graph, r: str, n: int, entered: bool = False) -> str:
        return self._splice(graph, self._levels[n], r, entered)

    def _run_tail(self, graph: Graph, r: str, entered: bool = False) -> str:
        return self._splice(graph, self._tail, r, entered)

    def _splice(self, graph: Graph, part: onnx.ModelProto, x: str, entered: bool = False) -> str:
        """A part of the network; `entered`: all signals enter there, so nothing comes through a gate above."""

        def find(graph: Graph, node: onnx.NodeProto, inputs: list[str]) -> str:
            signal, gate = inputs
            network = self._found[node.attribute[0].i]
            if entered:
                return self._splice(graph, network, signal)
            # Where the gate above is fully open for all signals, what is found here would be multiplied by zero.
            closed = graph.op("Cast", graph.op("Less", gate, graph.constant(np.float32(1))), to=7)
            needed = graph.op("Greater", graph.op("ReduceSum", closed, keepdims=0), graph.scalar(0))
            (found,) = graph.choose(
                needed,
                lambda inner: [self._splice(inner, network, signal)],
                lambda inner: [inner.constant(np.zeros((1, 1), np.float32))],
            )
            return found

        (answer,) = graph.splice(part, [x], {_MARK: self._expand, _FOUND: find})
        return answer

    def _shared_weights(self) -> list[NDArray[Any]]:
        """The weights of convolutions that are the same in several levels."""
        stored = [
            numpy_helper.to_array(tensor)
            for part in (*self._found.values(), *self._levels.values())
            for tensor in part.graph.initializer
            if len(tensor.dims) > 2
        ]
        counts = Counter((weight.shape, weight.tobytes()) for weight in stored)
        return [weight for weight in stored if counts[weight.shape, weight.tobytes()] > 1]

    def _expand(self, graph: Graph, node: onnx.NodeProto, inputs: list[str]) -> str:
        grids = {attribute.name: tuple(attribute.ints) for attribute in node.attribute}
        return resample_between(graph, inputs[0], grids["source"], grids["target"], self.parts.kernel)

    def _model(self, graph: Graph, answers: list[str], grid: Grid | None) -> onnx.ModelProto:
        ndim = self.parts.ndim
        shape = ["batch", self.parts.channels, *(SPACE[ndim] if grid is None else grid)]
        outputs: dict[str, tuple[str, list[str | int | None]]] = {self.parts.answers: ("float32", ["batch", None])}
        if len(answers) > 1:
            outputs[LEVEL] = ("int64", [])
        return graph.model({INPUT: ("float32", shape)}, outputs, answers)


def entrance_name(grid: Grid) -> str:
    """What the node is called by which signals enter the level of that grid.

    >>> entrance_name((32, 32))
    'entrance-32'
    """
    return f"entrance-{format_grid(grid)}"


def resampling_file(ndim: int, kernel: WhittakerShannon) -> onnx.ModelProto:
    """The model that takes signals of any size to a grid, its second input: for batches of mixed sizes."""
    graph = Graph()
    answer = resample_to(graph, INPUT, "grid", ndim, kernel)
    inputs: dict[str, tuple[str, list[str | int | None]]] = {
        INPUT: ("float32", ["batch", "channels", *SPACE[ndim]]),
        "grid": ("int64", [ndim]),
    }
    return graph.model(inputs, {"resampled": ("float32", ["batch", "channels", *[None] * ndim])}, [answer])


def mark_resampling(parts: Parts) -> None:
    """Puts a marked one in the place of each `Resampling` of the parts."""
    for part in (*parts.levels, parts.tail):
        for name, module in list(part.named_modules()):
            if type(module) is Resampling:
                part.set_submodule(name, _MarkedResampling(module.source, module.target, module.kernel))


def mark_junctions(parts: Parts) -> dict[int, VectorJunction]:
    """Puts a marked one in the place of each `VectorJunction` below another; returns those that stood there."""
    found: dict[int, VectorJunction] = {}
    for n, part in enumerate((*parts.levels, parts.tail)):
        for name, module in list(part.named_modules()):
            if n and type(module) is VectorJunction:
                part.set_submodule(name, _MarkedJunction(module, n).eval())
                found[n] = module
    return found


def _input_of(level: nn.Module) -> tuple[int, ...]:
    from arrn.nn.residual import LaplacianResidual

    assert isinstance(level, LaplacianResidual)
    return (level.in_features, *level.size)


def export_part(module: nn.Module, shape: Sequence[int]) -> onnx.ModelProto:
    """A module of the network as ONNX, for any number of samples of that shape.

    Raises:
        ArrnError: where PyTorch's exporter cannot follow it.
    """
    from onnx import inliner

    batch = torch.export.Dim("batch")
    with quietly():
        try:
            program = torch.onnx.export(
                module,
                (torch.zeros(2, *shape),),
                dynamic_shapes=({0: batch},),
                opset_version=20,
                dynamo=True,
                verbose=False,
            )
        except Exception as error:  # the exporter raises many kinds, with pages of text
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            raise ArrnError(
                f"a {type(module).__name__} of the network cannot be exported to ONNX: {first_line(cause)}"
            ) from error
    assert program is not None
    return inliner.inline_local_functions(program.model_proto)
