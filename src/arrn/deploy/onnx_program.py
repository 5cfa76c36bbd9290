"""Networks as ONNX files: one for a level, and one for all levels that chooses among them when it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import onnx
import torch
from torch import nn

from arrn.deploy.onnx_graph import Graph
from arrn.deploy.onnx_resampling import resample_between, resample_to, takes_any_size
from arrn.deploy.parts import Parts
from arrn.deploy.torch_programs import quietly
from arrn.errors import ArrnError, first_line
from arrn.nn.layers import Resampling
from arrn.signal.grid import Grid, format_grid
from arrn.signal.kernels import WhittakerShannon

INPUT, LEVEL = "signal", "level"
"""The names of a file's input, and of the number of the level that ran."""

SPACE = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}
"""What lengths of inputs are called."""

_DOMAIN, _MARK = "arrn", "Resample"


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
            r = self._run_level(graph, r, n)
        return self._model(graph, [self._run_tail(graph, r)], None if self.any_size else self.parts.grids[level])

    def any_size_file(self) -> onnx.ModelProto:
        """The model of all levels: the size of its input picks the level, and levels above that one do not run.

        Each level is a branch that runs where the input entered at or above it. Its second output is the number of
        the level, counted among all of the network's from the highest.
        """
        parts, graph = self.parts, Graph()
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

    def _run_level(self, graph: Graph, r: str, n: int) -> str:
        (answer,) = graph.splice(self._levels[n], [r], {_MARK: self._expand})
        return answer

    def _run_tail(self, graph: Graph, r: str) -> str:
        (answer,) = graph.splice(self._tail, [r], {_MARK: self._expand})
        return answer

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
