"""`Resampling`: the kernel's matrices between two fixed grids, as a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from arrn.signal.grid import Grid, format_grid
from arrn.signal.kernels import Kernel
from arrn.signal.operators import apply_axes, axes_to_resample

__all__ = ["Resampling"]


class Resampling(nn.Module):
    """Takes signals from one fixed grid to another by one matrix product per axis.

    The matrices are made in float64 and cast from there each time the module changes its dtype, so
    ``module.half().float()`` is as good as new. They are not parameters and not in `state_dict`.

    Shape: (batch, channels, *source) -> (batch, channels, *target); cell-centred grids, the kernel's
    border, the input's memory format.
    """

    def __init__(self, source: Grid, target: Grid, kernel: Kernel) -> None:
        super().__init__()
        self.source, self.target, self.kernel = source, target, kernel
        self._masters = [
            (axis, kernel.matrix(source[axis], target[axis])) for axis in axes_to_resample(kernel, source, target)
        ]
        for axis, matrix in self._masters:
            cast = matrix.to(dtype=torch.get_default_dtype(), device=torch.get_default_device())
            self.register_buffer(f"matrix{axis}", cast, persistent=False)

    @property
    def is_identity(self) -> bool:
        """Whether signals pass unchanged."""
        return not self._masters

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return apply_axes(x, [(axis, self.get_buffer(f"matrix{axis}")) for axis, _ in self._masters])

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        # torch casts a buffer from its present value, which may have lost digits in an earlier cast.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for axis, master in self._masters:
            present = self.get_buffer(f"matrix{axis}")
            setattr(self, f"matrix{axis}", master.to(dtype=present.dtype, device=present.device))
        return self

    def extra_repr(self) -> str:
        return f"{format_grid(self.source)} -> {format_grid(self.target)}, {self.kernel.name}/{self.kernel.boundary}"
