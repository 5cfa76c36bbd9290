"""Ratios that the core promises, each measured in one run: `python benchmarks/core.py [--json FILE]`.

* Resampling by matrices against the spectral reference of the same kernel.
* Where the spectral form begins to win (the crossover of `arrn.signal.resample`).
* Evaluation adapted to each level against evaluation of all levels, multiply-adds beside the times.

Times are medians; the spread is the larger of the two interquartile ranges, relative to its median.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import arrn
from arrn.nn import ARRN, multiply_adds
from arrn.provenance import provenance
from arrn.signal import WhittakerShannon, resample_spectral
from arrn.signal.resample import resample_by_matrices
from arrn.timing import time_call

BATCH, CHANNELS = 32, 64


def compare_resampling(shape: tuple[int, ...], boundary: str, device: str) -> dict[str, Any]:
    """Halves signals of `shape` (batch, channels, *space) in both forms; the ratio is spectral over matrix."""
    kernel = WhittakerShannon(boundary)  # type: ignore[arg-type]
    x = torch.randn(shape, device=device)
    grid = tuple(n // 2 for n in shape[2:])
    matrix = time_call(lambda: resample_by_matrices(x, grid, kernel), repeats=7, warmup=1)
    spectral = time_call(lambda: resample_spectral(x, grid, kernel), repeats=7, warmup=1)
    return {
        "boundary": boundary,
        "shape": list(shape),
        "target": grid[0],
        "matrix_ms": matrix.median * 1e3,
        "spectral_ms": spectral.median * 1e3,
        "ratio": spectral.median / matrix.median,
        "spread": max(matrix.spread, spectral.spread),
    }


def find_crossover(device: str) -> list[dict[str, Any]]:
    """Lines and squares of growing size, about as many samples in each: where does the ratio fall below 1?"""
    lines = [(max(1, 2**21 // n), 1, n) for n in (128, 256, 512, 1024, 2048, 4096, 8192)]
    squares = [(max(1, 2**21 // n**2), 3, n, n) for n in (128, 256, 512, 1024, 2048)]
    return [
        compare_resampling(shape, boundary, device)
        for boundary in ("symmetric", "periodic")
        for shape in (*lines, *squares)
    ]


def compare_levels(device: str) -> list[dict[str, Any]]:
    """The generic builder's default, channels-last: each level's own input, adapted and in full."""
    torch.manual_seed(0)
    model = arrn.create_model("arrn").eval().to(device).to(memory_format=torch.channels_last)
    assert isinstance(model, ARRN)
    rows: list[dict[str, Any]] = []
    with torch.no_grad():
        for grid in model.grids:
            x = torch.randn(BATCH, 3, *grid, device=device).contiguous(memory_format=torch.channels_last)
            adapted = model.at_resolution(grid)
            adapted_time = time_call(lambda adapted=adapted, x=x: adapted(x))  # type: ignore[misc]
            full_time = time_call(lambda x=x: model(x, adapt=False))  # type: ignore[misc]
            rows.append(
                {
                    "resolution": grid[0],
                    "multiply_adds": multiply_adds(adapted, (1, 3, *grid)),
                    "adapted_ms": adapted_time.median * 1e3,
                    "full_ms": full_time.median * 1e3,
                    "ratio": full_time.median / adapted_time.median,
                    "spread": max(full_time.spread, adapted_time.spread),
                }
            )
    return rows


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Prints rows as an aligned table."""
    texts = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows]
    heads = list(rows[0])
    widths = [max(len(line[k]) for line in [heads, *texts]) for k in range(len(heads))]
    print(f"\n{title}")
    for line in [heads, *texts]:
        print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))


def main() -> None:
    """Measures and prints everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    options = parser.parse_args()
    resampling = [
        compare_resampling((BATCH, CHANNELS, source, source), boundary, options.device)
        for boundary in ("symmetric", "periodic")
        for source in (32, 96)
    ]
    show(f"resampling in 2-D, batch {BATCH}, {CHANNELS} channels, float32 (ratio: spectral / matrix)", resampling)
    crossover = find_crossover(options.device)
    show("where the spectral form begins to win (ratio: spectral / matrix)", crossover)
    levels = compare_levels(options.device)
    show(f"evaluation, batch {BATCH}, channels-last, float32 (ratio: full / adapted)", levels)
    top, base = levels[0], levels[-1]
    gain = top["adapted_ms"] / base["adapted_ms"]
    work = top["multiply_adds"] / base["multiply_adds"]
    print(f"\nthe base's resolution against the top's: {gain:.2f}x faster, {work:.2f}x fewer multiply-adds")
    if options.json:
        document = {
            "resampling": resampling,
            "crossover": crossover,
            "levels": levels,
            "base_speed_up": gain,
            "provenance": provenance(),
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
