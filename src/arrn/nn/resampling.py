"""`Resampling`: the kernel's matrices between two fixed grids, as a module."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import nn

from arrn.gpu import is_fast
from arrn.signal.grid import Grid, format_grid
from arrn.signal.kernels import Kernel
from arrn.signal.operators import apply_axes, apply_composed, axes_to_resample
from arrn.signal.resample import resample_in_network, too_long_for_matrices

__all__ = ["Resampling"]

# On a GPU one product over all axes, which has more arithmetic but reads the signal once, up to how many entries.
LARGEST_COMPOSED = 2**19


class Resampling(nn.Module):
    """Takes signals from one fixed grid to another by one matrix product per axis, or on a GPU by one in all.

    Lines that are too long for a matrix, as those of sound are, go by transforms (`resample_in_network`).

    The matrices are made in float64 and cast from there each time the module changes its dtype, so
    ``module.half().float()`` is as good as new. They are not parameters and not in `state_dict`.

    Shape: (batch, channels, *source) -> (batch, channels, *target); cell-centred grids, the kernel's
    border, the input's memory format.
    """

    def __init__(self, source: Grid, target: Grid, kernel: Kernel) -> None:
        super().__init__()
        self.source, self.target, self.kernel = source, target, kernel
        self.by_transform = too_long_for_matrices(source, target, kernel)
        self.axes = [] if self.by_transform else axes_to_resample(kernel, source, target)
        for axis in self.axes:
            empty = torch.empty(0)  # its dtype and device are those in force
            self.register_buffer(f"matrix{axis}", self._cast(axis, empty), persistent=False)
        self.register_buffer("composed", self._compose(torch.empty(0)), persistent=False)

    def _cast(self, axis: int, like: torch.Tensor) -> torch.Tensor:
        master = self.kernel.matrix(self.source[axis], self.target[axis])
        return master.to(like.dtype).to(like.device)  # cast first: not every device has float64

    def _compose(self, like: torch.Tensor) -> torch.Tensor | None:
        """One matrix for all axes, where that pays."""
        entries = math.prod(self.source) * math.prod(self.target)
        if like.device.type != "cuda" or not 2 <= len(self.source) == len(self.axes) or entries > LARGEST_COMPOSED:
            return None
        masters = [self.kernel.matrix(n, m) for n, m in zip(self.source, self.target, strict=True)]
        return reduce(torch.kron, masters).to(like.dtype).to(like.device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.by_transform:
            return resample_in_network(x, self.target, self.kernel)
        if isinstance(self.composed, torch.Tensor) and is_fast():
            return apply_composed(x, self.composed, self.target)
        return apply_axes(x, [(axis, getattr(self, f"matrix{axis}")) for axis in self.axes])

    def taken_from(self, minuend: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """`minuend`, a signal on the target grid, less the resampled `x`."""
        if isinstance(self.composed, torch.Tensor) and is_fast():
            return apply_composed(x, self.composed, self.target, minuend)
        return minuend - self.forward(x)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        # torch casts a buffer from its present value, which may have lost digits in an earlier cast.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for axis in self.axes:
            setattr(self, f"matrix{axis}", self._cast(axis, getattr(self, f"matrix{axis}")))
        if self.axes:
            self.composed = self._compose(getattr(self, f"matrix{self.axes[0]}"))
        return self

    def extra_repr(self) -> str:
        return f"{format_grid(self.source)} -> {format_grid(self.target)}, {self.kernel.name}/{self.kernel.boundary}"
