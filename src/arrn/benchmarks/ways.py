"""Which ways there are to do the same thing, the reference first: the one place that knows of the fast paths."""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from arrn.gpu import fast_path, reference_path
from arrn.nn.dropout import Draw
from arrn.nn.residual import LaplacianResidual

__all__ = [
    "INFERENCE_WAYS",
    "REFERENCE",
    "STEP_WAYS",
    "InferenceWay",
    "StepWay",
    "inference_ways",
    "kernel_ways",
    "kernels",
    "lose_the_low_band",
    "step_ways",
]

REFERENCE = "reference"


def kernels(on: bool) -> AbstractContextManager[None]:
    """A context in which the library's own kernels and their like are used, or none of them is."""
    return fast_path() if on else reference_path()


def has_kernels(device: torch.device) -> bool:
    """Whether there are kernels of our own for `device`."""
    return device.type == "cuda"


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
    capturing = device.type == "cuda"
    found: dict[tuple[object, ...], StepWay] = {}
    for way in STEP_WAYS:
        if (way.compiled and not (compiled and can_compile(device))) or (way.captured and not capturing):
            continue
        ours = way.kernels and adaptive and has_kernels(device)
        found.setdefault((way.draw if adaptive else None, ours, way.compiled, way.captured), way)
    return list(found.values())


def inference_ways(device: torch.device, compiled: bool) -> list[InferenceWay]:
    """The ways that there are here; `compiled` is whether compiling is wanted."""
    compiling, capturing = compiled and can_compile(device), device.type == "cuda"
    return [w for w in INFERENCE_WAYS if (compiling or not w.compiled) and (capturing or not w.captured)]


def kernel_ways(device: torch.device) -> list[tuple[str, bool]]:
    """For one layer: PyTorch's own kernels and, where there are any, ours; the name, and whether ours are on."""
    return [(REFERENCE, False), *([("fast kernels", True)] if has_kernels(device) else [])]


def lose_the_low_band(residual: LaplacianResidual, r: torch.Tensor) -> torch.Tensor:
    """(I - U D) r as a residual computes it."""
    return residual.up.taken_from(r, residual.down(r))
