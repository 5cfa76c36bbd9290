"""Times the depthwise kernels over tilings, on a GPU: `python tools/tune_kernels.py [--json FILE]`.

For each shape of a training step of `arrn_cifar10` (and the issue's own, 256 channels at 32x32, batch 128) and each
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
TILINGS = [
    Tiling(rows, strips, channels, warps)
    for rows, (strips, channels), warps in itertools.product(
        (2, 4, 8), ((2, 64), (4, 64), (8, 64), (16, 64), (8, 32), (16, 32), (4, 128), (2, 128)), (2, 4, 8)
    )
    # Two to eight numbers a thread: fewer waste the load, more the registers.
    if 2 <= strips * channels // (32 * warps) <= 8
]


def calls(shape: tuple[int, ...], tiling: Tiling) -> dict[str, tuple[Callable[[], object], int]]:
    """Each kernel on fresh random inputs, and how often it must move a tensor of that shape."""
    from arrn.gpu.depthwise_launch import depthwise_backward_input, depthwise_backward_weight, depthwise_forward

    channels = shape[-1]
    x, gradient = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    weight = torch.randn(channels, 1, 3, 3, device="cuda")
    normal, pivot = torch.rand(4, channels, device="cuda") + 0.5, torch.zeros(channels, device="cuda")
    return {
        "forward": (lambda: depthwise_forward(x, weight, tiling=tiling), 2),
        "forward, fused": (lambda: depthwise_forward(x, weight, normal=normal, pivot=pivot, tiling=tiling), 2),
        "by input": (lambda: depthwise_backward_input(gradient, weight, tiling=tiling), 2),
        "by input, fused": (lambda: depthwise_backward_input(gradient, weight, x, normal, tiling=tiling), 3),
        "by weight": (lambda: depthwise_backward_weight(gradient, x, tiling=tiling), 2),
        "by weight, fused": (lambda: depthwise_backward_weight(gradient, x, normal, tiling=tiling), 2),
    }


def compile_all(tilings: list[Tiling]) -> None:
    """Leaves compiled kernels in Triton's cache, where the timing finds them."""
    for tiling in tilings:
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
    processes = min(12, os.cpu_count() or 1)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(pool.map(compile_all, [TILINGS[n::processes] for n in range(processes)]))
    from triton.testing import do_bench

    rate = bandwidth()
    print(f"copy: {rate / 1e12:.2f} TB/s; {len(TILINGS)} tilings")
    rows = []
    for shape in SHAPES:
        tensor = 2 * torch.Size(shape).numel()
        for name in calls(shape, TILINGS[0]):
            timed = []
            for tiling in TILINGS:
                call, passes = calls(shape, tiling)[name]
                timed.append((do_bench(call, warmup=5, rep=20, return_mode="median") * 1e3, tiling))
                floor = passes * tensor / rate * 1e6
                rows.append(
                    {"shape": shape, "kernel": name, "tiling": vars(tiling), "us": timed[-1][0], "floor": floor}
                )
            timed.sort(key=lambda pair: pair[0])
            best = "  ".join(f"{us:.0f}us r{t.rows} p{t.strips} c{t.channels} w{t.warps}" for us, t in timed[:4])
            print(f"{'x'.join(map(str, shape)):>16} {name:<17} floor {floor:4.0f}us  {best}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"bandwidth": rate, "times": rows}) + "\n")


if __name__ == "__main__":
    main()
