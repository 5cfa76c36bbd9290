"""CUDA graphs: what was launched once, replayed without the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

__all__ = ["CapturedNetwork", "capture", "over_all"]

_CALLS_BEFORE = 3  # handles, algorithms and compiled kernels must be there before the capture begins

Input = TypeVar("Input")


def capture(call: Callable[[], torch.Tensor | None]) -> tuple[torch.cuda.CUDAGraph, torch.Tensor | None]:
    """A graph of what `call` launches, and what it returns: the memory that a replay fills."""
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(_CALLS_BEFORE):
            call()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()
    return graph, out


class CapturedNetwork:
    """A network at one input shape: the input is copied in, the graph replayed; the answer is overwritten next time."""

    def __init__(self, network: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> None:
        self._input = x.clone()
        self._graph, self._answer = capture(lambda: network(self._input))

    def __call__(self, x: torch.Tensor) -> torch.Tensor | None:
        """The answer for `x`, of the shape and memory format of the example."""
        self._input.copy_(x)
        self._graph.replay()
        return self._answer


def over_all(call: Callable[[Input], object], inputs: Sequence[Input], device: torch.device) -> Callable[[], object]:
    """`call` on every one of `inputs`; on a GPU as one graph, so that kernels are timed and not their launching."""

    def calls() -> None:
        for x in inputs:
            call(x)

    return capture(calls)[0].replay if device.type == "cuda" else calls
