"""The kernels against float64: every small size on a GPU, ten of them through Triton's interpreter on a CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from strategies import relative_error

pytest.importorskip("triton")

CHECKS = Path(__file__).resolve().parent.parent / "gpu_checks.py"
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
HALVES = [torch.bfloat16, torch.float16]


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU runs the kernels themselves")
def test_in_the_interpreter_they_are_float32s_own_distance_from_float64() -> None:
    quiet = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, str(CHECKS)], capture_output=True, text=True, env=quiet, check=False)
    assert done.returncode == 0, done.stderr
    errors = json.loads(done.stdout)
    assert len(errors) > 100
    assert {name: error for name, error in errors.items() if not error < 1e-5} == {}


@GPU
@pytest.mark.parametrize("size", range(1, 41))
def test_the_convolution_is_right_at_every_size(size: int) -> None:
    from gpu_checks import convolution_pairs

    for grid, channels in [((size, size), 64), ((size, 41 - size), 70)]:
        for name, got, exact in convolution_pairs(3, channels, grid, torch.float32, torch.device("cuda")):
            assert relative_error(got.double(), exact) < 1e-5, (name, grid)
        for half in HALVES:
            for name, got, exact in convolution_pairs(3, channels, grid, half, torch.device("cuda")):
                rounding = relative_error(exact.to(half).double(), exact)
                assert relative_error(got.double(), exact) <= 1.5 * rounding, (name, grid, half)


@GPU
@pytest.mark.parametrize("channels", [1, 3, 16, 33])
def test_the_convolution_is_right_for_few_channels(channels: int) -> None:
    from gpu_checks import convolution_pairs

    for name, got, exact in convolution_pairs(3, channels, (5, 8), torch.float32, torch.device("cuda")):
        assert relative_error(got.double(), exact) < 1e-5, name


@GPU
@pytest.mark.parametrize("grid", [(3, 5), (8, 8), (17, 9), (40, 1)])
def test_the_norms_around_it_are_right(grid: tuple[int, int]) -> None:
    from gpu_checks import norm_pairs

    for channels in (70, 896):
        for name, got, exact in norm_pairs(4, channels, grid, torch.float32, torch.device("cuda")):
            assert relative_error(got.double(), exact) < 2e-5, (name, channels)
        for half in HALVES:
            for name, got, exact in norm_pairs(4, channels, grid, half, torch.device("cuda")):
                # The gradient by what SiLU saw is stored in half precision on its way.
                rounding = torch.finfo(half).eps
                assert relative_error(got.double(), exact) <= rounding, (name, channels, half)


@GPU
@pytest.mark.parametrize("depth", [1, 3])
def test_a_block_is_what_its_layers_are(depth: int) -> None:
    from gpu_checks import block_pairs

    for grid in [(5, 4), (16, 16)]:
        for name, got, exact in block_pairs(32, depth, grid, torch.float32, torch.device("cuda")):
            assert relative_error(got.double(), exact) < 1e-4, (name, grid)
        for name, got, exact in block_pairs(32, depth, grid, torch.bfloat16, torch.device("cuda")):
            assert relative_error(got.double(), exact) < 0.05, (name, grid)


@GPU
def test_a_block_drops_the_channels_that_its_layers_would() -> None:
    from gpu_checks import dropout_pairs

    for name, got, exact in dropout_pairs(torch.device("cuda")):
        assert relative_error(got.double(), exact) < 1e-4, name


@GPU
@pytest.mark.parametrize("batch", [3, 64])  # by pixels, by strips
def test_nothing_is_left_unwritten(batch: int) -> None:
    from arrn.gpu.depthwise_launch import depthwise_backward, depthwise_forward
    from arrn.gpu.norm_launch import norm_silu, norm_silu_sums

    x, gradient = torch.randn(2, batch, 13, 11, 70, device="cuda")
    weight, normal = torch.randn(70, 1, 3, 3, device="cuda"), torch.rand(4, 70, device="cuda")
    calls = [
        lambda: depthwise_forward(x, weight)[0],
        lambda: depthwise_forward(x, weight, normal=normal, pivot=normal[0])[0],
        lambda: depthwise_backward(gradient, weight, x)[0],
        lambda: depthwise_backward(gradient, weight, x)[1],
        lambda: norm_silu(x, normal),
        lambda: norm_silu_sums(gradient, x, normal),
    ]
    for call in calls:
        expected = call().clone()
        for _ in range(3):  # fresh memory may hold what an earlier call wrote: poison it
            poison = [torch.full_like(part, torch.nan) for part in (x, expected)]
            del poison
            assert torch.equal(call(), expected)
