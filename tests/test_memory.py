"""How much memory is free, and what tensors take at their peak."""

import math
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from arrn import memory
from arrn.memory import PeakMemory, free_memory, in_gigabytes

CPU = torch.device("cpu")


def test_free_memory_is_something_that_this_process_can_have() -> None:
    assert 1e6 < free_memory(CPU) < 1e15


@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_the_limits_of_a_process_count(limit: str) -> None:
    code = f"""
import resource, torch
from arrn.memory import free_memory
pages = [int(n) for n in open("/proc/self/statm").read().split()]
taken = pages[{0 if limit == "RLIMIT_AS" else 5}] * resource.getpagesize()
hard = resource.getrlimit(resource.{limit})[1]
resource.setrlimit(resource.{limit}, (taken + 300_000_000, hard))
print(free_memory(torch.device("cpu")))
"""
    if not Path("/proc/self/statm").exists():
        pytest.skip("this system does not tell how much a process has taken")
    assert hasattr(resource, limit)
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 200e6 < float(told.stdout) < 310e6


def write_group(folder: Path, limit: str, limit_file: str, used_file: str, cached: str) -> None:
    folder.mkdir(parents=True)
    (folder / limit_file).write_text(limit + "\n")
    (folder / used_file).write_text("600\n")
    (folder / "memory.stat").write_text(f"anon 400\n{cached} 150\n")


@pytest.mark.parametrize(
    "files",
    [
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ],
)
def test_what_a_control_group_has_left_is_its_limit_less_what_cannot_be_given_back(
    tmp_path: Path, files: tuple[str, str, str]
) -> None:
    write_group(tmp_path / "limited", "1000", *files)
    write_group(tmp_path / "free", "max", *files)
    assert memory._left_in(tmp_path / "limited", *files) == 1000 - 600 + 150
    assert memory._left_in(tmp_path / "free", *files) > 1e15
    assert memory._left_in(tmp_path / "nowhere", *files) > 1e15


def test_the_peak_is_what_lives_at_once() -> None:
    x = torch.zeros(1000)
    with PeakMemory(CPU, [x]) as measured:
        a = x + 1
        b = a + 1
        x.add_(b)  # what was known before costs nothing
        view = b.view(10, 100)
        del a, b
        assert measured.restart() == 8000
        c = view + 1
        assert measured.restart() == 8000
        del view, c
        measured.restart()
        d = x * 2
    assert measured.peak == 4000
    assert len(d) == 1000


def test_what_the_backward_pass_keeps_and_makes_is_counted() -> None:
    layers = nn.Sequential(*(nn.Linear(100, 100, bias=False) for _ in range(4)))
    x = torch.randn(50, 100, requires_grad=True)
    with PeakMemory(CPU, [x, *layers.parameters()]) as measured:
        layers(x).sum().backward()
    activations, gradients = 4 * 50 * 100 * 4, 4 * 100 * 100 * 4
    assert activations <= measured.peak <= activations + gradients + 10 * 50 * 100 * 4
    assert measured.peak >= gradients


def test_a_limit_ends_the_work() -> None:
    with PeakMemory(CPU, limit=10_000), pytest.raises(MemoryError, match="tensors take more than"):
        torch.zeros(1000).repeat(3)


def test_bytes_in_words() -> None:
    assert in_gigabytes(1.26e9) == "1.3 GB"
    assert in_gigabytes(2e6) == "0.002 GB"
    assert math.isfinite(float(in_gigabytes(1).split()[0]))
