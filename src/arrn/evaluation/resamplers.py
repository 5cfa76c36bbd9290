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

__all__ = ["RESAMPLERS", "Resampler", "check_resampler", "lower"]

Resampler: TypeAlias = str | Mapping[str, Any]
"""A name among `RESAMPLERS`, or a kernel's `kernel_options`."""

RESAMPLERS = ("perfect", "fair", "poor", "bicubic", "area")


def lower(x: torch.Tensor, size: Grid, resampler: Resampler = "perfect") -> torch.Tensor:
    """Takes floating-point samples of shape (batch, channels, *space) down to `size`.

    ``"bicubic"`` is torch's, with antialiasing, for images (Pillow's on floats); ``"area"`` averages.
    Both use cell-centred grids, as the kernels do. The same size is left as it is.
    """
    check_resampler(resampler, x.ndim - 2)
    if grid_of(x) == size:
        return x
    if resampler == "bicubic":
        return F.interpolate(x, size, mode="bicubic", antialias=True)
    if resampler == "area":
        return F.interpolate(x, size, mode="area")
    return resample(x, size, kernel(resampler))


def check_resampler(resampler: Resampler, ndim: int) -> None:
    """Raises unless `lower` can use it for signals of `ndim` axes of space."""
    if not isinstance(resampler, str):
        kernel(resampler)
    elif resampler not in RESAMPLERS:
        raise unknown_name("resampler", resampler, RESAMPLERS)
    elif resampler == "bicubic" and ndim != 2:
        raise ArrnError(f"the bicubic resampler is for images, got {ndim} axes of space; use 'area'")
