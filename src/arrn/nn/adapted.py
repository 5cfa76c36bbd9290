"""`AdaptedARRN`: an ARRN cast to one input resolution, holding only what that resolution needs."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn

from arrn.errors import ArrnError
from arrn.nn.blockless import BlocklessLevel
from arrn.nn.chain import LaplacianChain
from arrn.nn.dropout import LaplacianDropout
from arrn.nn.fusion import fold_batch_norms
from arrn.nn.projection import Projection, projecting_first_pays
from arrn.nn.resampling import Resampling
from arrn.nn.residual import LaplacianResidual
from arrn.signal.grid import Grid, check_signal, format_grid
from arrn.signal.kernels import Kernel

__all__ = ["AdaptedARRN"]


class AdaptedARRN(LaplacianChain):
    """What `ARRN.at_resolution` returns: a plain module for inputs of one size.

    It shares the residuals, base and head that it keeps with the network it came from; the chain of
    skipped projections is folded, in float64, into one new parameter. It takes one size only, so what
    it does never depends on the shape of its input, and it compiles and exports on its own.

    Shape: (batch, in_channels, *size) -> (batch, num_classes).
    """

    def __init__(
        self,
        size: Grid,
        grid: Grid,
        kernel: Kernel,
        projection: Projection,
        residuals: Sequence[LaplacianResidual],
        base: nn.Module,
        head: nn.Module,
        dropout: LaplacianDropout,
        skipped: int,
        blockless: Sequence[BlocklessLevel] = (),
    ) -> None:
        super().__init__(residuals, base, head, dropout, skipped, blockless)
        self.size = size
        self.projection = projection
        weight = projection.weight
        self.resampling = Resampling(size, grid, kernel).to(device=weight.device, dtype=weight.dtype)
        self._project_first = projecting_first_pays(projection.in_features, projection.out_features, size, grid)

    def _enter(self, x: torch.Tensor, level: int) -> torch.Tensor:
        first, then = (self.projection, self.resampling) if self._project_first else (self.resampling, self.projection)
        r: torch.Tensor = then(first(x))
        return r

    def _check(self, x: torch.Tensor) -> None:
        grid = check_signal(x, len(self.size), self.projection.in_features, self.projection.weight)
        if grid != self.size:
            raise ArrnError(
                f"this network was cast to inputs of size {format_grid(self.size)}, got {format_grid(grid)}: "
                f"call at_resolution({grid}) on the whole network"
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._check(x)
        return self._logits(x, 0)

    def forward_features(self, x: torch.Tensor) -> torch.Tensor:
        """The base's output, shape (batch, features, *base grid)."""
        self._check(x)
        return self._features(x, 0)

    def fuse(self) -> AdaptedARRN:
        """A copy in evaluation mode with its batch norms folded into the convolutions before them.

        The copy shares nothing with this network; the numbers are the same to rounding.
        """
        return fold_batch_norms(copy.deepcopy(self).eval())

    def extra_repr(self) -> str:
        return f"input {format_grid(self.size)}, {self.skipped} levels skipped"
