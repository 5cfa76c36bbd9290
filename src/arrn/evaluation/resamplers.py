"""How evaluation makes lower resolutions: the perfect kernel, or what other tools do to images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from torch.nn import functional as F

from arrn.errors import ArrnError, unknown_name
from arrn.signal.grid import Grid, grid_of
from arrn.signal.kernels import kernel
from arrn.signal.resample import resample

__all__ = ["RESAMPLERS", "Resampler", "lower"]

Resampler: TypeAlias = str | Mapping[str, Any]
"""A name among `RESAMPLERS`, or a kernel's `kernel_options`."""

RESAMPLERS = ("perfect", "fair", "poor", "bicubic", "area")


def lower(x: torch.Tensor, size: Grid, resampler: Resampler = "perfect") -> torch.Tensor:
    """Takes floating-point samples of shape (batch, channels, *space) down to `size`.

    ``"bicubic"`` is torch's, with antialiasing, for images (Pillow's on floats); ``"area"`` averages.
    Both use cell-centred grids, as the kernels do. The same size is left as it is.
    """
    if grid_of(x) == size:
        return x
    if resampler == "bicubic":
        if x.ndim != 4:
            raise ArrnError(f"the bicubic resampler is for images, got {x.ndim - 2} axes of space; use 'area'")
        return F.interpolate(x, size, mode="bicubic", antialias=True)
    if resampler == "area":
        return F.interpolate(x, size, mode="area")
    if isinstance(resampler, str) and resampler not in RESAMPLERS:
        raise unknown_name("resampler", resampler, RESAMPLERS)
    return resample(x, size, kernel(resampler))
