"""The ways in which a case is run: fast kernels or PyTorch's own, compiled, captured; and what is run in them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from arrn.gpu import Replay, fast_path, reference_path
from arrn.nn.dropout import Draw
from arrn.nn.network import Network, config_of
from arrn.training.step import order_memory

REFERENCE = "reference"
_MEMORY_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
_CALLS_BEFORE = 3  # handles, algorithms and compiled kernels must be there before the capture begins
Input = TypeVar("Input")


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


def inference_ways(device: torch.device, compiled: bool) -> list[InferenceWay]:
    """The ways that there are here; `compiled` is whether compiling is wanted."""
    compiling, capturing = compiled and can_compile(device), device.type == "cuda"
    return [w for w in INFERENCE_WAYS if (compiling or not w.compiled) and (capturing or not w.captured)]


def kernel_ways(device: torch.device) -> list[tuple[str, bool]]:
    """For one layer: PyTorch's own kernels and, where there are any, ours; the name, and whether ours are on."""
    return [(REFERENCE, False), *([("fast kernels", True)] if has_kernels(device) else [])]


def with_kernels(on: bool) -> AbstractContextManager[None]:
    """A context in which the library's own kernels and their like are used, or none of them is."""
    return fast_path() if on else reference_path()


def has_kernels(device: torch.device) -> bool:
    """Whether there are kernels of our own for `device`."""
    return device.type == "cuda"


def can_compile(device: torch.device) -> bool:
    """Whether `torch.compile` has what it needs: on a CPU a C++ compiler."""
    return device.type == "cuda" or any(map(shutil.which, ("c++", "g++", "clang++")))


def class_count(model: nn.Module) -> int:
    """The classes that a named model was built for."""
    return int(config_of(model)["options"]["num_classes"])


def input_shape(model: nn.Module, batch: int) -> tuple[int, ...]:
    """The shape of a batch of inputs at the model's largest grid."""
    assert isinstance(model, Network)
    return (batch, model.in_channels, *model.grids[0])


def random_signal(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Random numbers of that shape, channels last where there are axes enough."""
    order = _MEMORY_FORMATS.get(len(shape), torch.contiguous_format)
    return torch.randn(shape, device=device).to(dtype).contiguous(memory_format=order)


def to_inference(network: nn.Module, ndim: int, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """The network itself, brought to the device."""
    return order_memory(network.eval().to(device=device, dtype=dtype), ndim)


def without_gradients(run: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """`run` as inference runs it."""

    def answer(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return run(x)

    return answer


def replayed(network: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> Replay[torch.Tensor]:
    """The network, recorded for inputs like `x`."""
    replay = Replay(network, x.device, warmup=_CALLS_BEFORE)
    for _ in range(_CALLS_BEFORE + 1):
        replay(x)
    if replay.recordings == 0:
        raise RuntimeError("it could not be recorded as a CUDA graph")
    return replay


def over_all(call: Callable[[Input], object], inputs: Sequence[Input], device: torch.device) -> Callable[[], object]:
    """`call` on every one of `inputs`; on a GPU as one graph, so that kernels are timed and not their launching."""

    def calls() -> None:
        for x in inputs:
            call(x)

    return _capture(calls).replay if device.type == "cuda" else calls


def _capture(call: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """A graph of what `call` launches."""
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(_CALLS_BEFORE):
            call()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph
