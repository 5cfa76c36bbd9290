"""`BlocklessLevel`: a level of the ladder without a block, which only Laplacian dropout knows of."""

from __future__ import annotations

import torch
from torch import nn

from arrn.errors import ArrnError
from arrn.nn.resampling import Resampling
from arrn.signal.grid import Grid, check_descent, format_grid
from arrn.signal.kernels import Kernel

__all__ = ["BlocklessLevel"]


class BlocklessLevel(nn.Module):
    """What a level, or the base, receives for samples that lost this one: the band of a lower grid, on its own.

    An input whose resolution lies between two grids, or below the base's, is interpolated up to the next grid, whose
    block has never seen one so smooth. With such a level it has: in training, dropping to it replaces r by U D r,
    which is what that resolution looks like there. It has no block and no parameters, changes nothing in evaluation,
    and the network stays as exact as it was. Beyond the paper.

    Args:
        size: the grid of the residual, or of the base, that comes next.
        lower: the grid whose band is left.
        kernel: the network's.

    Shape: (batch, features, *size), unchanged.
    """

    def __init__(self, size: Grid, lower: Grid, kernel: Kernel) -> None:
        super().__init__()
        check_descent(size, lower)
        if all(kernel.band(n) == kernel.band(m) for n, m in zip(size, lower, strict=True)):
            raise ArrnError(
                f"{format_grid(size)} and {format_grid(lower)} hold the same band under {kernel}: a level without "
                "a block must lose something, so choose a smaller one"
            )
        self.size, self.lower = size, lower
        self.down = Resampling(size, lower, kernel)
        self.up = Resampling(lower, size, kernel)

    def forward(
        self,
        r: torch.Tensor,
        survivors: torch.Tensor | int | None = None,
        next_survivors: torch.Tensor | int | None = None,
    ) -> torch.Tensor:
        """Smooths the samples that lose this level, but not those that lose the next one too: they are smoothed there.

        Args:
            r: shape (batch, features, *size).
            survivors: of this level, as in `LaplacianResidual.forward`; None keeps all.
            next_survivors: of the level below, in the same form; None if there is none.
        """
        if survivors is None:
            return r
        if isinstance(survivors, torch.Tensor):
            dropped = ~survivors
            if isinstance(next_survivors, torch.Tensor):
                dropped = dropped & next_survivors
            return torch.where(dropped.view(-1, *[1] * (r.ndim - 1)), self.up(self.down(r)), r)
        end = r.shape[0] if next_survivors is None else min(int(next_survivors), r.shape[0])
        if survivors >= end:
            return r
        smooth: torch.Tensor = self.up(self.down(r[survivors:end]))
        return torch.cat([r[:survivors], smooth, r[end:]])

    def extra_repr(self) -> str:
        return f"{format_grid(self.size)}, smoothed to {format_grid(self.lower)}"
