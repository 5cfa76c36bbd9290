"""Which ways there are on which machine."""

from contextlib import nullcontext

import pytest
import torch

import arrn.benchmarks.ways
from arrn.benchmarks.ways import REFERENCE, inference_ways, kernel_ways, reference_path, step_ways

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with compiler and fast kernels, and a step that can be captured."""
    monkeypatch.setattr(arrn.benchmarks.ways, "can_compile", lambda device: True)
    monkeypatch.setattr(arrn.benchmarks.ways, "fast_kernels", lambda device: device.type == "cuda")
    monkeypatch.setattr(arrn.benchmarks.ways, "TrainingStep", lambda captured: None)


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


def test_without_kernels_of_our_own_everything_is_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert isinstance(reference_path(), nullcontext)
    assert kernel_ways(CUDA) == [(REFERENCE, False)]
