"""CUDA graphs: what was launched once, replayed without the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from arrn.gpu import Replay

__all__ = ["over_all", "replayed"]

_CALLS_BEFORE = 3  # handles, algorithms and compiled kernels must be there before the capture begins

Input = TypeVar("Input")


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
