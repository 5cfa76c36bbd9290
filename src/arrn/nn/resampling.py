"""`Resampling`: the kernel's matrices between two fixed grids, as a module."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import nn

from arrn.gpu import is_fast, product_dtype
from arrn.signal.grid import Grid, format_grid
from arrn.signal.kernels import Kernel
from arrn.signal.operators import apply_axes, apply_composed, axes_to_resample
from arrn.signal.resample import resample_in_network, too_long_for_matrices

# Where one product over all axes pays, which has more arithmetic but reads the signal once, and up to how many entries.
COMPOSED_ON = {"cuda"}
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
        self._casts: dict[tuple[torch.dtype, torch.device, bool], torch.Tensor] = {}

    def _cast(self, axis: int, like: torch.Tensor) -> torch.Tensor:
        master = self.kernel.matrix(self.source[axis], self.target[axis])
        return master.to(like.dtype).to(like.device)  # cast first: not every device has float64

    def _compose(self, like: torch.Tensor) -> torch.Tensor | None:
        """One matrix for all axes, where that pays."""
        small = math.prod(self.source) * math.prod(self.target) <= LARGEST_COMPOSED
        if like.device.type not in COMPOSED_ON or not 2 <= len(self.source) == len(self.axes) or not small:
            return None
        masters = [self.kernel.matrix(n, m) for n, m in zip(self.source, self.target, strict=True)]
        return reduce(torch.kron, masters).to(like.dtype).to(like.device)

    @property
    def is_composed(self) -> bool:
        """Whether one matrix for all axes is there and wanted."""
        return isinstance(self.composed, torch.Tensor) and is_fast()

    def composed_for(self, x: torch.Tensor, rejecting: bool = False) -> torch.Tensor:
        """The one matrix for all axes, in the dtype in which it meets `x`; made once.

        With `rejecting`, the mean over the source grid is taken from each answer in the same product.
        """
        key = product_dtype(x), x.device, rejecting
        if torch.compiler.is_compiling() and not rejecting:
            assert isinstance(self.composed, torch.Tensor)
            return self.composed.to(key[0])  # a cast that the compiler sees; it cannot follow what is kept for later
        if key not in self._casts:
            # Training may need again what evaluation made first, and autograd takes no tensor of inference mode.
            with torch.inference_mode(False):
                whole = self._compose(torch.empty(0, dtype=torch.float64, device=x.device))
                assert whole is not None
                matrix = (whole - rejecting / whole.shape[1]).to(key[0])
            if type(matrix) is not torch.Tensor:
                return matrix  # a tracer's stand-in, which must not outlive the trace
            self._casts[key] = matrix
        return self._casts[key]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.by_transform:
            return resample_in_network(x, self.target, self.kernel)
        if self.is_composed:
            return apply_composed(x, self.composed_for(x), self.target)
        return apply_axes(x, [(axis, getattr(self, f"matrix{axis}")) for axis in self.axes])

    def taken_from(self, minuend: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """`minuend`, a signal on the target grid, less the resampled `x`."""
        if self.is_composed:
            return apply_composed(x, self.composed_for(x), self.target, minuend)
        resampled: torch.Tensor = self(x)
        return minuend - resampled

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        before = list(self.buffers())
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if all(now is then for now, then in zip(self.buffers(), before, strict=True)):
            return self  # a recorded graph knows the matrices by their address
        # torch casts a buffer from its present value, which may have lost digits in an earlier cast.
        self._casts.clear()
        for axis in self.axes:
            setattr(self, f"matrix{axis}", self._cast(axis, getattr(self, f"matrix{axis}")))
        if self.axes:
            self.composed = self._compose(getattr(self, f"matrix{self.axes[0]}"))
        return self

    def extra_repr(self) -> str:
        return f"{format_grid(self.source)} -> {format_grid(self.target)}, {self.kernel.name}/{self.kernel.boundary}"
