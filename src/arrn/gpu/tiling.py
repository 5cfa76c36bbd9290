"""How the kernels divide their work; numbers measured on an NVIDIA H200, see docs/performance.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import torch


@dataclass(frozen=True)
class StripTiling:
    """What one program of a depthwise kernel covers.

    Attributes:
        rows: of a strip.
        strips: at once.
        channels: at once.
        warps: of 32 threads each.
    """

    rows: int
    strips: int
    channels: int
    warps: int


@dataclass(frozen=True)
class RowTiling:
    """What one program of a kernel over rows of channels covers: a norm's, or the depthwise one for few images.

    Attributes:
        rows: of channels, at once; a row to a pixel.
        channels: at once.
        warps: of 32 threads each.
        programs: about how many in all, where they share the rows of a sum.
    """

    rows: int
    channels: int
    warps: int
    programs: int = 0


def power_of_two(n: int) -> int:
    """The least power of two that is `n` or more."""
    return 1 << max(0, n - 1).bit_length()


FEW_NUMBERS = 2**20
"""Up to how many numbers of output the depthwise kernel goes by pixels."""


def inference_tiling(shape: Sequence[int], activated: bool) -> StripTiling | RowTiling:
    """For the depthwise kernel on (batch, height, width, channels) where no moments are taken.

    With `activated`, SiLU stands on either side of it.
    """
    _, height, _, channels = shape
    if math.prod(shape) <= FEW_NUMBERS:
        return RowTiling(rows=8, channels=min(32, power_of_two(channels)), warps=1)
    if height <= 4 or not activated:
        return forward_tiling(shape)
    if height <= 8:
        return StripTiling(rows=8, strips=1, channels=min(64, power_of_two(channels)), warps=1)
    return StripTiling(rows=8, strips=1, channels=min(128, power_of_two(channels)), warps=2)


def forward_tiling(shape: Sequence[int]) -> StripTiling:
    """For the depthwise kernel on (batch, height, width, channels): a strip of 4 or 8 rows to a warp.

    Eight rows read less at the borders of strips, but make half as many programs: they pay where there are still many
    with a long way to go, and where they are the whole image.
    """
    batch, height, width, channels = shape
    many = batch * (height // 8) * channels >= 2**17
    if 4 < height <= 8 or (many and width >= 32):
        return StripTiling(rows=8, strips=1, channels=min(128, power_of_two(channels)), warps=1)
    return backward_tiling(shape)


def backward_tiling(shape: Sequence[int]) -> StripTiling:
    """For its gradients, which hold more: a strip of up to 4 rows to a warp."""
    _, height, _, channels = shape
    return StripTiling(rows=min(4, power_of_two(height)), strips=1, channels=min(64, power_of_two(channels)), warps=1)


def matrix_tiling(channels: int) -> RowTiling:
    """For kernels over rows of channels: about 2048 numbers at once."""
    wide = min(128, power_of_two(channels))
    return RowTiling(rows=2048 // wide, channels=wide, warps=4)


def sums_tiling(channels: int) -> RowTiling:
    """For kernels that sum over rows of channels: as many programs as run at once."""
    wide = min(64, power_of_two(channels))
    return RowTiling(rows=2048 // wide, channels=wide, warps=4, programs=528)


def row_programs(rows: int, channels: int, tiling: RowTiling) -> int:
    """How many programs share the rows of a sum."""
    across = -(-channels // tiling.channels)
    return max(1, min(-(-rows // tiling.rows), tiling.programs // across))


def joining(programs: int) -> dict[str, int]:
    """How many programs' numbers a kernel that joins them reads at once, and with how many warps."""
    return {"BLOCK_P": min(256, power_of_two(programs)), "num_warps": 8 if programs > 128 else 4}


Rest = ParamSpec("Rest")
Result = TypeVar("Result")
Launch = Callable[Concatenate[torch.Tensor, Rest], Result]


def on_the_gpu_of_its_input(launch: Launch[Rest, Result]) -> Launch[Rest, Result]:
    """`launch`, run with the GPU of its first argument as the current one."""

    @wraps(launch)
    def placed(x: torch.Tensor, /, *args: Rest.args, **kwargs: Rest.kwargs) -> Result:
        # Changing it takes the host longer than asking; on a CPU kernels are interpreted.
        if not x.is_cuda or x.get_device() == torch.cuda.current_device():
            return launch(x, *args, **kwargs)
        with torch.cuda.device(x.device):
            return launch(x, *args, **kwargs)

    return placed
