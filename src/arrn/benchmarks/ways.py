"""Which ways there are to do the same thing, the reference first: the one place that knows of the fast paths.

A fast path joins here: kernels by `arrn.gpu.reference_path`, under which all of them are off, and the captured
training step by the argument `captured` of `TrainingStep`. Where one of them is not there, its ways are left out.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import shutil
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import cast

import torch

from arrn.nn.dropout import Draw
from arrn.nn.residual import LaplacianResidual
from arrn.training import TrainingStep

__all__ = [
    "INFERENCE_WAYS",
    "REFERENCE",
    "STEP_WAYS",
    "InferenceWay",
    "StepWay",
    "captured_option",
    "inference_ways",
    "kernel_ways",
    "lose_the_low_band",
    "reference_path",
    "step_ways",
]

REFERENCE = "reference"


def reference_path() -> AbstractContextManager[object]:
    """A context in which every fast kernel is off."""
    if importlib.util.find_spec("arrn.gpu") is None:
        return nullcontext()
    off = importlib.import_module("arrn.gpu").reference_path
    return cast(AbstractContextManager[object], off())


def fast_kernels(device: torch.device) -> bool:
    """Whether there are kernels of our own for `device`."""
    return device.type == "cuda" and importlib.util.find_spec("arrn.gpu") is not None


def can_compile(device: torch.device) -> bool:
    """Whether `torch.compile` has what it needs: on a CPU a C++ compiler."""
    return device.type == "cuda" or any(map(shutil.which, ("c++", "g++", "clang++")))


@dataclass(frozen=True)
class StepWay:
    """A way to take a training step.

    Attributes:
        name: what it is called.
        draw: how Laplacian dropout draws.
        kernels: whether fast kernels are on.
        compiled: whether the network goes through `torch.compile`.
        captured: whether the step is replayed from a CUDA graph.
    """

    name: str
    draw: Draw = "stratified"
    kernels: bool = True
    compiled: bool = False
    captured: bool = False


STEP_WAYS = (
    StepWay(REFERENCE, draw="sample", kernels=False),
    StepWay("stratified draw", kernels=False),
    StepWay("fast kernels"),
    StepWay("compiled", compiled=True),
    StepWay("captured", captured=True),
    StepWay("compiled, captured", compiled=True, captured=True),
)
"""A training step: the paper's draw with PyTorch's own kernels, then each way that makes it faster."""


@dataclass(frozen=True)
class InferenceWay:
    """A way to evaluate a network.

    Attributes:
        name: what it is called.
        fused: batch norms folded into convolutions, an ARRN cast to its input's level, fast kernels on.
        compiled: through `torch.compile`.
        captured: replayed from a CUDA graph, the input copied in each time.
    """

    name: str
    fused: bool = True
    compiled: bool = False
    captured: bool = False


INFERENCE_WAYS = (
    InferenceWay(REFERENCE, fused=False),
    InferenceWay("fused"),
    InferenceWay("compiled", compiled=True),
    InferenceWay("captured", captured=True),
    InferenceWay("compiled, captured", compiled=True, captured=True),
)
"""An evaluation: the eager network with PyTorch's own kernels, then each way that makes it faster."""


def step_ways(device: torch.device, compiled: bool, adaptive: bool) -> list[StepWay]:
    """The ways that there are here, each once: without fast kernels, or a draw, some are the same.

    Args:
        device: where.
        compiled: whether compiling is wanted.
        adaptive: whether the network is an ARRN, which has a draw and the layers that fast kernels are for.
    """
    capturing = device.type == "cuda" and "captured" in inspect.signature(TrainingStep).parameters
    found: dict[tuple[object, ...], StepWay] = {}
    for way in STEP_WAYS:
        if (way.compiled and not (compiled and can_compile(device))) or (way.captured and not capturing):
            continue
        kernels = way.kernels and adaptive and fast_kernels(device)
        found.setdefault((way.draw if adaptive else None, kernels, way.compiled, way.captured), way)
    return list(found.values())


def inference_ways(device: torch.device, compiled: bool) -> list[InferenceWay]:
    """The ways that there are here; `compiled` is whether compiling is wanted."""
    compiling, capturing = compiled and can_compile(device), device.type == "cuda"
    return [w for w in INFERENCE_WAYS if (compiling or not w.compiled) and (capturing or not w.captured)]


def kernel_ways(device: torch.device) -> list[tuple[str, bool]]:
    """For one layer: PyTorch's own kernels and, where there are any, ours; the name, and whether ours are on."""
    return [(REFERENCE, False), *([("fast kernels", True)] if fast_kernels(device) else [])]


def captured_option(way: StepWay) -> dict[str, bool]:
    """What tells `TrainingStep` to capture; nothing where it cannot."""
    return {"captured": way.captured} if "captured" in inspect.signature(TrainingStep).parameters else {}


def lose_the_low_band(residual: LaplacianResidual, r: torch.Tensor) -> torch.Tensor:
    """(I - U D) r as a residual computes it."""
    smooth: torch.Tensor = residual.up(residual.down(r))
    return r - smooth
