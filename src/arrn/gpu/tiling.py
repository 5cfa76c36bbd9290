"""How the kernels divide their work; numbers measured on an NVIDIA H200, see docs/performance.md."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "Tiling",
    "backward_tiling",
    "forward_tiling",
    "matrix_tiling",
    "power_of_two",
    "row_programs",
    "sums_tiling",
]


@dataclass(frozen=True)
class Tiling:
    """What one program of a kernel covers.

    Attributes:
        rows: of a strip (depthwise), or of the matrix (norms).
        strips: at once (depthwise); about how many programs share the rows of a sum (norms).
        channels: at once.
        warps: of 32 threads each.
    """

    rows: int
    strips: int
    channels: int
    warps: int


def power_of_two(n: int) -> int:
    """The least power of two that is `n` or more."""
    return 1 << max(0, n - 1).bit_length()


def forward_tiling(height: int, channels: int) -> Tiling:
    """For the depthwise kernel: a strip of up to 4 rows, 64 channels, one warp."""
    return Tiling(rows=min(4, power_of_two(height)), strips=1, channels=min(64, power_of_two(channels)), warps=1)


def backward_tiling(height: int, channels: int) -> Tiling:
    """For its gradients: likewise."""
    return forward_tiling(height, channels)


def matrix_tiling(channels: int) -> Tiling:
    """For kernels over rows of channels: about 2048 numbers at once."""
    wide = min(128, power_of_two(channels))
    return Tiling(rows=2048 // wide, strips=1, channels=wide, warps=4)


def sums_tiling(channels: int) -> Tiling:
    """For kernels that sum over rows of channels."""
    wide = min(64, power_of_two(channels))
    return Tiling(rows=1024 // wide, strips=1056, channels=wide, warps=4)


def row_programs(rows: int, channels: int, tiling: Tiling) -> int:
    """How many programs share the rows of a sum."""
    across = -(-channels // tiling.channels)
    return max(1, min(-(-rows // tiling.rows), tiling.strips // across))
