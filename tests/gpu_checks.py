"""How far the kernels are from float64: run on a GPU, or on a CPU through Triton's interpreter (as a script)."""

import copy
import json
import sys
from collections.abc import Iterator

import torch
import torch.nn.functional as F

import arrn.nn.fast
from arrn.gpu import fast_path, is_fast, reference_depthwise, reference_path
from arrn.gpu.depthwise_launch import depthwise_backward, depthwise_forward
from arrn.gpu.fused import norm_silu_depthwise, norm_silu_rows
from arrn.gpu.norm_launch import finish_moments, measure_moments
from arrn.gpu.tiling import FEW_NUMBERS, RowTiling, inference_tiling
from arrn.nn import InvertedBlock
from arrn.nn.fast import can_fuse
from arrn.nn.inference import fold_batch_norms
from arrn.signal.operators import channels_last
from arrn.testing import awaken_norms
from strategies import relative_error

SIZES_IN_THE_INTERPRETER = [(1, 1), (2, 1), (1, 4), (3, 3), (4, 5), (5, 4), (7, 8), (8, 8), (13, 9), (16, 17)]

# What is compared: the answer in `dtype`, and what float64 makes of the same inputs.
Pair = tuple[str, torch.Tensor, torch.Tensor]


def _random(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.randn(shape, device=device).to(dtype)


def _exact(x: torch.Tensor) -> torch.Tensor:
    return x.detach().double().requires_grad_()


def convolution_pairs(
    batch: int, channels: int, grid: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> Iterator[Pair]:
    """The convolution alone, its bias and its activations, and its gradients."""
    x, gradient = (_random((batch, channels, *grid), dtype, device) for _ in range(2))
    weight, bias = _random((channels, 1, 3, 3), dtype, device), _random((channels,), dtype, device)
    exact, exact_weight = _exact(x), _exact(weight)
    y = reference_depthwise(exact, exact_weight, bias.double())
    by_input, by_weight = torch.autograd.grad(y, (exact, exact_weight), gradient.double())
    rows, arriving = channels_last(x), channels_last(gradient)
    many = (1 + FEW_NUMBERS, *rows.shape[1:])
    tilings = {
        "strips": inference_tiling(many, activated=False),
        "strips for activations": inference_tiling(many, activated=True),
        "pixels": RowTiling(rows=64, channels=64, warps=4),
    }
    for way, tiling in tilings.items():
        yield f"output, by {way}", depthwise_forward(rows, weight, bias, tiling=tiling)[0], channels_last(y.detach())
    got_by_input, got_by_weight, _ = depthwise_backward(arriving, weight, rows)
    yield "by input", got_by_input, channels_last(by_input)
    yield "by weight", got_by_weight.to(dtype), by_weight
    activated = F.silu(reference_depthwise(F.silu(exact), exact_weight, bias.double()))
    for way, tiling in tilings.items():
        fused, _ = depthwise_forward(rows, weight, bias, silu_before=True, silu_after=True, tiling=tiling)
        yield f"activated, by {way}", fused, channels_last(activated.detach())


def norm_pairs(
    batch: int, channels: int, grid: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> Iterator[Pair]:
    """Batch norm and SiLU, with the convolution after them and alone, each with its gradients and its moments."""
    # Off centre: that is where moments lose their digits.
    x = _random((batch, channels, *grid), dtype, device) * 2 + 3
    weight = _random((channels, 1, 3, 3), torch.float32, device)
    gamma, beta = 0.5 + torch.rand(channels, device=device), torch.randn(channels, device=device)
    gradient = _random((batch, channels, *grid), dtype, device)

    inputs = [_exact(t) for t in (x, gamma, beta, weight)]
    mean, var = torch.zeros(channels, device=device).double(), torch.ones(channels, device=device).double()
    a = F.silu(F.batch_norm(inputs[0], mean, var, inputs[1], inputs[2], training=True, momentum=0.1, eps=1e-5))
    z = reference_depthwise(a, inputs[3])
    through = torch.autograd.grad(z, inputs, gradient.double(), retain_graph=True)
    alone = torch.autograd.grad(a, inputs[:3], gradient.double())

    rows, arriving = channels_last(x).requires_grad_(), channels_last(gradient)
    leaves = [rows, *(t.clone().requires_grad_() for t in (gamma, beta, weight))]
    running_mean, running_var = torch.zeros(channels, device=device), torch.ones(channels, device=device)
    count = torch.zeros((), dtype=torch.int64, device=device)
    normal = finish_moments(measure_moments(rows.detach()), gamma, beta, running_mean, running_var, count, 0.1, 1e-5)
    yield "batches", count, torch.ones((), dtype=torch.float64, device=device)
    yield "running mean", running_mean, mean
    yield "running variance", running_var, var
    fused, partial = norm_silu_depthwise(*leaves[:3], normal, leaves[3], torch.randn(channels, device=device))
    yield "convolved", fused.detach(), channels_last(z.detach())
    ones, zeros = torch.ones(channels, device=device), torch.zeros(channels, device=device)
    measured = finish_moments(partial, ones, zeros, zeros.clone(), ones.clone(), count, 0.1, 0.0)
    stored = fused.detach().double().flatten(0, 2)
    yield "mean of the convolved", measured[2], stored.mean(0)
    yield "deviation of the convolved", 1 / measured[3], stored.std(0, unbiased=False)
    for name, got, exact in zip(
        ("x", "gamma", "beta", "weight"), torch.autograd.grad(fused, leaves, arriving), through, strict=True
    ):
        yield f"convolved by {name}", got, channels_last(exact) if name == "x" else exact
    activated = norm_silu_rows(*leaves[:3], normal)
    yield "activated", activated.detach(), channels_last(a.detach())
    for name, got, exact in zip(
        ("x", "gamma", "beta"), torch.autograd.grad(activated, leaves[:3], arriving), alone, strict=True
    ):
        yield f"activated by {name}", got, channels_last(exact) if name == "x" else exact


def block_pairs(
    features: int, depth: int, grid: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> Iterator[Pair]:
    """A whole block in training, with its gradients and statistics, in evaluation, and with its norms folded."""
    block = InvertedBlock(features, expansion=2, depth=depth).to(device)
    with reference_path():
        awaken_norms(block, torch.randn(4, features, *grid, device=device))
    exact = copy.deepcopy(block.train()).double()
    x = _random((4, features, *grid), dtype, device).contiguous(memory_format=torch.channels_last).requires_grad_()
    gradient = _random((4, features, *grid), dtype, device)
    with fast_path(), torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
        assert can_fuse(block, x)
        y = block(x)
        got = torch.autograd.grad(y, [x, *block.parameters()], gradient)
    exact_x = _exact(x)
    exact_y = exact(exact_x)
    expected = torch.autograd.grad(exact_y, [exact_x, *exact.parameters()], gradient.double())
    yield "output", y.detach(), exact_y.detach()
    for name, a, b in zip(("x", *dict(block.named_parameters())), got, expected, strict=True):
        yield f"by {name}", a, b
    for (name, a), b in zip(block.named_buffers(), exact.buffers(), strict=True):
        yield name, a, b.double()
    block.eval()
    with torch.no_grad(), fast_path():
        quiet = x.detach().float()
        yield "in evaluation", block(quiet), exact.eval()(exact_x).detach()
        yield "folded", fold_batch_norms(block)(quiet), exact(exact_x).detach()


def dropout_pairs(device: torch.device) -> Iterator[Pair]:
    """A block that drops channels: fused, and layer by layer with the same draws; in float32."""
    block = InvertedBlock(6, expansion=2, depth=2, dropout=0.3).to(device).train()
    x = torch.randn(4, 6, 5, 4, device=device).contiguous(memory_format=torch.channels_last).requires_grad_()
    gradient = torch.randn(4, 6, 5, 4, device=device)
    answers = []
    for path in (fast_path, reference_path):
        torch.manual_seed(3)
        with path():
            assert can_fuse(block, x) == (path is fast_path)
            y = block(x)
            answers.append([y.detach(), *torch.autograd.grad(y, [x, *block.parameters()], gradient)])
    for name, got, expected in zip(("output", "by x", *dict(block.named_parameters())), *answers, strict=True):
        yield name, got, expected.double()


def main() -> None:
    """Prints the error of each pair in float32, for ten sizes, as JSON."""
    cpu = torch.device("cpu")
    errors: dict[str, float] = {}
    for n, grid in enumerate(SIZES_IN_THE_INTERPRETER):
        channels = (3, 16, 70, 8, 20)[n % 5]  # fewer than a block of channels, just one, and more than one
        for name, got, exact in convolution_pairs(2, channels, grid, torch.float32, cpu):
            errors[f"{grid}: {name}"] = relative_error(got.double(), exact)
        # With a few samples a batch norm's own gradient is ill-conditioned.
        if grid[0] * grid[1] > 8:
            for name, got, exact in norm_pairs(2, channels, grid, torch.float32, cpu):
                errors[f"{grid}: {name}, normalised"] = relative_error(got.double(), exact)
    arrn.nn.fast.kernels_serve = lambda x: is_fast()  # the interpreter takes what is on a CPU
    for name, got, exact in dropout_pairs(cpu):
        errors[f"a block that drops channels: {name}"] = relative_error(got.double(), exact)
    for depth, grid in [(1, (5, 4)), (2, (4, 6))]:
        for name, got, exact in block_pairs(6, depth, grid, torch.float32, cpu):
            errors[f"a block of depth {depth}: {name}"] = relative_error(got.double(), exact)
    json.dump(errors, sys.stdout)


if __name__ == "__main__":
    main()
