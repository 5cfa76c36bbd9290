"""How the kernels divide their work; numbers measured on an NVIDIA H200, see docs/performance.md."""

from __future__ import annotations

from collections.abc import Sequence
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


def forward_tiling(shape: Sequence[int]) -> Tiling:
    """For the depthwise kernel on (batch, height, width, channels): a strip of 4 or 8 rows to a warp.

    Eight rows read less at the borders of strips, but make half as many programs: they pay where there are still many
    with a long way to go, and where they are the whole image.
    """
    batch, height, width, channels = shape
    many = batch * (height // 8) * channels >= 2**17
    if 4 < height <= 8 or (many and width >= 32):
        return Tiling(rows=8, strips=1, channels=min(128, power_of_two(channels)), warps=1)
    return backward_tiling(shape)


def backward_tiling(shape: Sequence[int]) -> Tiling:
    """For its gradients, which hold more: a strip of up to 4 rows to a warp."""
    _, height, _, channels = shape
    return Tiling(rows=min(4, power_of_two(height)), strips=1, channels=min(64, power_of_two(channels)), warps=1)


def matrix_tiling(channels: int) -> Tiling:
    """For kernels over rows of channels: about 2048 numbers at once."""
    wide = min(128, power_of_two(channels))
    return Tiling(rows=2048 // wide, strips=1, channels=wide, warps=4)


def sums_tiling(channels: int) -> Tiling:
    """For kernels that sum over rows of channels: as many programs as run at once."""
    wide = min(64, power_of_two(channels))
    return Tiling(rows=2048 // wide, strips=528, channels=wide, warps=4)


def row_programs(rows: int, channels: int, tiling: Tiling) -> int:
    """How many programs share the rows of a sum."""
    across = -(-channels // tiling.channels)
    return max(1, min(-(-rows // tiling.rows), tiling.strips // across))
