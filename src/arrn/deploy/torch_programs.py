"""Levels as programs of PyTorch: files of `torch.export`, which torch alone loads, and of ExecuTorch for phones."""

from __future__ import annotations

import io
import logging
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from arrn.deploy.parts import LevelProgram, Parts
from arrn.errors import ArrnError, first_line, needs
from arrn.signal.grid import Grid
from arrn.signal.kernels import WhittakerShannon
from arrn.signal.resample import LARGEST_MATRIX

_Array = np.ndarray[Any, Any]


def takes_any_size(parts: Parts) -> bool:
    """Whether a program can resample inputs of any size: by matrices, which long lines of sound are too long for."""
    kernel = parts.kernel
    symmetric = type(kernel) is WhittakerShannon and kernel.boundary == "symmetric"
    return symmetric and max(parts.grids[0]) ** 2 <= LARGEST_MATRIX


class _ResampledProgram(nn.Module):
    """Inputs of any size, taken to a level's grid by matrices that are computed from their shape."""

    def __init__(self, program: nn.Module, grid: Grid) -> None:
        super().__init__()
        self.program, self.grid = program, grid

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        for axis, target in enumerate(self.grid):
            matrix = _cosine_matrix(signal.shape[2 + axis], target)
            signal = torch.matmul(signal.movedim(2 + axis, -1), matrix.t()).movedim(-1, 2 + axis)
        answers: torch.Tensor = self.program(signal)
        return answers


def _cosine_matrix(source: int, target: int) -> torch.Tensor:
    """The perfect kernel's (target, source) matrix; as `Kernel.matrix`, from a size that a tracer holds open."""
    k = torch.arange(target)[:, None]

    def modes(size: int) -> torch.Tensor:
        phase = k * (2 * torch.arange(size)[None, :] + 1) % (4 * size)
        return torch.cos(phase.double() * (math.pi / 2 / size))

    weight = torch.where(k < source, torch.where(k == 0, 1.0, 2.0), 0.0).double() / source
    matrix: torch.Tensor = modes(target).t() @ (weight * modes(source))
    return matrix.float()


def pt2_program(parts: Parts, level: int) -> bytes:
    """The `torch.export` file of a level, for any number of inputs."""
    grid, batch = parts.grids[level], torch.export.Dim("batch")
    program: nn.Module = LevelProgram(parts, level).eval()
    lengths: dict[int, Any] = {0: batch}
    example = torch.zeros(2, parts.channels, *grid)
    if takes_any_size(parts):
        program = _ResampledProgram(program, grid).eval()
        lengths |= {2 + axis: torch.export.Dim(f"length{axis}") for axis in range(parts.ndim)}
        example = torch.zeros(2, parts.channels, *(n + 3 + axis for axis, n in enumerate(grid)))
    content = io.BytesIO()
    with quietly(), torch.no_grad():
        try:
            exported = torch.export.export(program, (example,), dynamic_shapes=(lengths,))
            torch.export.save(exported, content)
        except Exception as error:  # the tracer raises many kinds, with pages of text
            raise ArrnError(f"torch.export cannot follow this network: {first_line(error)}") from error
    return content.getvalue()


def run_pt2(path: Path) -> Callable[[_Array], _Array]:
    """What runs a file of `torch.export`."""
    module = torch.export.load(path).module()

    def run(stored: _Array) -> _Array:
        with torch.no_grad():
            answers: torch.Tensor = module(torch.from_numpy(stored))
        return answers.numpy()

    return run


def executorch_program(parts: Parts, level: int) -> bytes:
    """The ExecuTorch file of a level, for one input on the level's grid, its layers on XNNPACK where that has them."""
    with needs("executorch", "exporting for ExecuTorch", "executorch"), quietly():
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower
    if parts.ndim > 2:
        raise ArrnError("ExecuTorch has no convolutions over 3 axes: export networks for volumes with --to onnx")
    program = LevelProgram(parts, level).eval()
    example = torch.zeros(1, parts.channels, *parts.grids[level])
    with quietly(), torch.no_grad():
        try:
            exported = torch.export.export(program, (example,))
            lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
            content: bytes = bytes(lowered.to_executorch().buffer)
        except Exception as error:  # its passes raise many kinds
            raise ArrnError(f"ExecuTorch cannot take this network (--to onnx may): {first_line(error)}") from error
    return content


def run_executorch(path: Path) -> Callable[[_Array], _Array]:
    """What runs a file of ExecuTorch."""
    with quietly():
        from executorch.runtime import Runtime

        program = Runtime.get().load_program(path)

    def run(stored: _Array) -> _Array:
        # A method does not keep its program alive: loaded here, it is gone before the program is.
        (answers,) = program.load_method("forward").execute([torch.from_numpy(stored)])
        return np.array(answers)

    return run


@contextmanager
def quietly() -> Iterator[None]:
    """Keeps exporters from writing to the terminal: what they warn of is checked by running the file that they made.

    >>> with quietly():
    ...     print("Applied 3 of general pattern rewrite rules.")
    """
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
