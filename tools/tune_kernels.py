"""Times the kernels over tilings, on a GPU: `python tools/tune_kernels.py [--json FILE]`.

For each shape of a training step of `arrn_cifar10` (and 256 channels at 32x32, batch 128, the target's own) and each
kernel, prints the best tilings beside the traffic floor: bytes that must move over the bandwidth of a large copy.
What wins goes into `arrn/gpu/tiling.py`. Kernels are compiled by several processes first: compiling takes longer than
timing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

from arrn.gpu.tiling import Tiling

SHAPES = [(128, 32, 32, 256), (51, 32, 32, 256), (82, 16, 16, 896), (128, 8, 8, 976)]
STRIPS = [
    Tiling(rows, strips, channels, warps)
    for rows, (strips, channels), warps in itertools.product(
        (2, 4, 8), ((1, 64), (2, 64), (4, 64), (8, 64), (8, 32), (4, 32), (2, 128), (1, 128)), (1, 2, 4, 8)
    )
    # Two to four numbers a thread: fewer waste the load, more the registers.
    if 2 <= strips * channels // (32 * warps) <= 4
]
MATRICES = [
    Tiling(rows, programs, channels, warps)
    for rows, channels, warps, programs in itertools.product((16, 32, 64), (64, 128), (4, 8), (264, 528, 1056))
    if 8 <= rows * channels // (32 * warps) <= 16
]


def strip_calls(shape: tuple[int, ...], tiling: Tiling) -> dict[str, tuple[Callable[[], object], int]]:
    """Each depthwise kernel on fresh random inputs, and how often it must move a tensor of that shape."""
    from arrn.gpu.depthwise_launch import depthwise_backward, depthwise_forward

    channels = shape[-1]
    x, gradient = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    weight = torch.randn(channels, 1, 3, 3, device="cuda")
    normal, pivot = torch.rand(4, channels, device="cuda") + 0.5, torch.zeros(channels, device="cuda")
    return {
        "forward": (lambda: depthwise_forward(x, weight, tiling=tiling), 2),
        "forward, fused": (lambda: depthwise_forward(x, weight, normal=normal, pivot=pivot, tiling=tiling), 2),
        "backward": (lambda: depthwise_backward(gradient, weight, x, tiling=tiling), 3),
        "backward, fused": (lambda: depthwise_backward(gradient, weight, x, normal, tiling=tiling), 3),
    }


def matrix_calls(shape: tuple[int, ...], tiling: Tiling) -> dict[str, tuple[Callable[[], object], int]]:
    """Each norm kernel likewise."""
    from arrn.gpu.norm_launch import measure_moments, norm_silu, norm_silu_backward, norm_silu_sums

    x, gradient = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    normal, sums = (torch.rand(rows, shape[-1], device="cuda") + 0.5 for rows in (4, 2))
    return {
        "moments": (lambda: measure_moments(x, tiling), 1),
        "sums": (lambda: norm_silu_sums(gradient, x, normal, tiling), 2),
        "norm": (lambda: norm_silu(x, normal, tiling), 2),
        "norm backward": (lambda: norm_silu_backward(gradient, x, normal, sums, True, tiling), 3),
    }


FAMILIES = [(strip_calls, STRIPS), (matrix_calls, MATRICES)]


def compile_all(part: int, parts: int) -> None:
    """Leaves compiled kernels in Triton's cache, where the timing finds them."""
    for calls, tilings in FAMILIES:
        for tiling in tilings[part::parts]:
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
    from triton.testing import do_bench

    rate = bandwidth()
    print(f"copy: {rate / 1e12:.2f} TB/s; {len(STRIPS)} and {len(MATRICES)} tilings", flush=True)
    rows = []
    for shape, (calls, tilings) in itertools.product(SHAPES, FAMILIES):
        tensor = 2 * torch.Size(shape).numel()
        for name in calls(shape, tilings[0]):
            timed = []
            for tiling in tilings:
                call, passes = calls(shape, tiling)[name]
                timed.append((do_bench(call, warmup=3, rep=10, return_mode="median") * 1e3, tiling))
                floor = passes * tensor / rate * 1e6
                rows.append(
                    {"shape": shape, "kernel": name, "tiling": vars(tiling), "us": timed[-1][0], "floor": floor}
                )
            timed.sort(key=lambda pair: pair[0])
            best = "  ".join(f"{us:.0f} r{t.rows} p{t.strips} c{t.channels} w{t.warps}" for us, t in timed[:4])
            print(f"{'x'.join(map(str, shape)):>14} {name:<15} floor {floor:3.0f}us  {best}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"bandwidth": rate, "times": rows}) + "\n")


if __name__ == "__main__":
    main()
