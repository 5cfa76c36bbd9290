"""Which ways there are on which machine."""

import pytest
import torch

import arrn.benchmarks.ways
from arrn.benchmarks.ways import REFERENCE, inference_ways, kernel_ways, step_ways

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a compiler."""
    monkeypatch.setattr(arrn.benchmarks.ways, "can_compile", lambda device: True)


def names(ways: list) -> list[str]:
    return [way.name for way in ways]


@pytest.mark.usefixtures("everything")
def test_the_ways_to_train() -> None:
    every = [REFERENCE, "stratified draw", "fast kernels", "compiled", "captured", "compiled, captured"]
    assert names(step_ways(CUDA, compiled=True, adaptive=True)) == every
    assert names(step_ways(CUDA, compiled=False, adaptive=True)) == [*every[:3], "captured"]
    assert names(step_ways(CUDA, compiled=True, adaptive=False)) == [REFERENCE, *every[3:]]
    assert names(step_ways(CPU, compiled=True, adaptive=True)) == [REFERENCE, "stratified draw", "compiled"]


@pytest.mark.usefixtures("everything")
def test_the_ways_to_infer() -> None:
    assert names(inference_ways(CPU, compiled=False)) == [REFERENCE, "fused"]
    assert names(inference_ways(CPU, compiled=True)) == [REFERENCE, "fused", "compiled"]
    assert names(inference_ways(CUDA, compiled=False)) == [REFERENCE, "fused", "captured"]
    assert len(inference_ways(CUDA, compiled=True)) == 5


@pytest.mark.usefixtures("everything")
def test_the_ways_of_one_layer() -> None:
    assert kernel_ways(CPU) == [(REFERENCE, False)]
    assert kernel_ways(CUDA) == [(REFERENCE, False), ("fast kernels", True)]
