"""Times the kernels over tilings, on a GPU: `python tools/tune_kernels.py [--json FILE]`.

For each shape of a training step of `arrn_cifar10` (and 256 channels at 32x32, batch 128, the target's own) and each
kernel, prints the best tilings, their numbers in the order of `StripTiling` and `RowTiling`, beside the traffic floor:
bytes that must move over the bandwidth of a large copy. Times are from CUDA graphs: the kernels, not their launching.
What wins goes into `arrn/gpu/tiling.py`. Kernels are compiled by several processes first: compiling takes longer than
timing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import arrn
from arrn.benchmarks.depthwise import depthwise_shapes
from arrn.gpu.tiling import RowTiling, StripTiling
from arrn.nn import ARRN

BATCH = 128
Calls = dict[str, tuple[Callable[[], object], int]]
"""Kernels by name: a call, and how often it must move a tensor of the given shape."""


def shapes() -> list[tuple[int, ...]]:
    """The target's own, and for each size of `arrn_cifar10` as many samples of a batch as dropout leaves there."""
    model = arrn.create_model("arrn_cifar10")
    assert isinstance(model, ARRN)
    steps = model.droppable()
    kept = dict(zip(steps, model.dropout.survival(len(steps)), strict=True))
    samples = [*(round(BATCH * kept[residual]) for residual in model.levels), BATCH]
    grids = [(*grid, channels) for channels, *grid in depthwise_shapes(model)]
    return [(BATCH, 32, 32, 256), *((count, *grid) for count, grid in zip(samples, grids, strict=True))]


def forward_calls(shape: tuple[int, ...], tiling: StripTiling) -> Calls:
    """The depthwise convolution on fresh random inputs, alone and with all that is fused to it."""
    from arrn.gpu.depthwise_launch import depthwise_forward

    x, _, weight, normal = inputs(shape)
    pivot = torch.zeros_like(normal[0])
    return {
        "forward": (lambda: depthwise_forward(x, weight, tiling=tiling), 2),
        "forward, fused": (lambda: depthwise_forward(x, weight, normal=normal, pivot=pivot, tiling=tiling), 2),
        "inference": (lambda: depthwise_forward(x, weight, silu_before=True, silu_after=True, tiling=tiling), 2),
    }


def backward_calls(shape: tuple[int, ...], tiling: StripTiling) -> Calls:
    """Its gradients."""
    from arrn.gpu.depthwise_launch import depthwise_backward

    x, gradient, weight, normal = inputs(shape)
    return {
        "backward": (lambda: depthwise_backward(gradient, weight, x, tiling=tiling), 3),
        "backward, fused": (lambda: depthwise_backward(gradient, weight, x, normal, tiling=tiling), 3),
    }


def sums_calls(shape: tuple[int, ...], tiling: RowTiling) -> Calls:
    """The norm kernels that sum over rows."""
    from arrn.gpu.norm_launch import measure_moments, norm_silu_sums

    x, gradient, _, normal = inputs(shape)
    return {
        "moments": (lambda: measure_moments(x, tiling), 1),
        "sums": (lambda: norm_silu_sums(gradient, x, normal, tiling=tiling), 2),
    }


def map_calls(shape: tuple[int, ...], tiling: RowTiling) -> Calls:
    """The norm kernels that go from number to number."""
    from arrn.gpu.norm_launch import norm_silu, norm_silu_backward

    x, gradient, _, normal = inputs(shape)
    return {
        "norm": (lambda: norm_silu(x, normal, tiling=tiling), 2),
        "norm backward": (lambda: norm_silu_backward(gradient, x, normal, normal[:2], True, tiling=tiling), 3),
        "norm, no silu": (lambda: norm_silu_backward(gradient, x, normal, normal[:2], False, tiling=tiling), 3),
    }


def inputs(shape: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    """A tensor, its gradient, depthwise weights, and rows of a norm's numbers."""
    x, gradient = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    channels = shape[-1]
    return x, gradient, torch.randn(channels, 1, 3, 3, device="cuda"), torch.rand(4, channels, device="cuda") + 0.5


def strips(rows: tuple[int, ...], *others: tuple[int, int, int]) -> list[StripTiling]:
    """Each number of rows with each (strips, channels, warps)."""
    return [StripTiling(r, *other) for r, other in itertools.product(rows, others)]


def matrices(rows: tuple[int, ...], *others: tuple[int, ...]) -> list[RowTiling]:
    """Each number of rows with each (channels, warps), or for sums (channels, warps, programs)."""
    return [RowTiling(r, *other) for r, other in itertools.product(rows, others)]


FAMILIES: list[tuple[Callable[[tuple[int, ...], Any], Calls], Sequence[StripTiling | RowTiling]]] = [
    (
        forward_calls,
        [
            *strips((4, 8), (1, 64, 1), (2, 64, 2), (4, 64, 4), (1, 128, 1), (2, 128, 2), (1, 128, 2), (2, 128, 4)),
            *strips((2,), (1, 64, 1), (4, 64, 4)),
        ],
    ),
    (backward_calls, strips((2, 4), (1, 64, 1), (2, 64, 2), (4, 64, 4), (1, 128, 2), (2, 128, 4))),
    (sums_calls, matrices((16, 32, 64), *itertools.product((64, 128), (4, 8), (528, 1056, 2112, 4224)))),
    (map_calls, matrices((8, 16, 32), (128, 4), (256, 4), (256, 8))),
]


def compile_all(part: int, parts: int) -> None:
    """Leaves compiled kernels in Triton's cache, where the timing finds them."""
    work = [(calls, tiling) for calls, several in FAMILIES for tiling in several]
    for calls, tiling in work[part::parts]:
        for call, _ in calls((2, 8, 8, 256), tiling).values():
            call()


def bandwidth() -> float:
    """Bytes per second of a large copy, reads and writes counted."""
    from triton.testing import do_bench

    source = torch.randn(2**28, device="cuda")
    target = torch.empty_like(source)
    milliseconds: float = do_bench(lambda: target.copy_(source), return_mode="median")
    return 2 * source.nbytes / milliseconds * 1e3


def main() -> None:
    """Compiles, times, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write all times to this file")
    options = parser.parse_args()
    processes = min(16, os.cpu_count() or 1)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(pool.map(compile_all, range(processes), [processes] * processes))
    from triton.testing import do_bench_cudagraph

    rate = bandwidth()
    print(f"copy: {rate / 1e12:.2f} TB/s", flush=True)
    rows = []
    for shape, (calls, several) in itertools.product(shapes(), FAMILIES):
        tensor = 2 * torch.Size(shape).numel()
        for name in calls(shape, several[0]):
            timed = []
            for tiling in several:
                call, passes = calls(shape, tiling)[name]
                timed.append((do_bench_cudagraph(call, rep=5, return_mode="median") * 1e3, tiling))
                floor = passes * tensor / rate * 1e6
                rows.append(
                    {"shape": shape, "kernel": name, "tiling": vars(tiling), "us": timed[-1][0], "floor": floor}
                )
            timed.sort(key=lambda pair: pair[0])
            best = "  ".join(f"{us:.1f} {'/'.join(map(str, vars(t).values()))}" for us, t in timed[:4])
            print(f"{'x'.join(map(str, shape)):>14} {name:<15} floor {floor:3.0f}us  {best}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"bandwidth": rate, "times": rows}) + "\n")


if __name__ == "__main__":
    main()
