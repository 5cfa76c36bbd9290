"""`BlocklessLevel`: a level of the ladder below the base, which only Laplacian dropout knows of."""

from __future__ import annotations

import torch
from torch import nn

from arrn.errors import ArrnError
from arrn.nn.resampling import Resampling
from arrn.signal.grid import Grid, check_descent, format_grid
from arrn.signal.kernels import Kernel

__all__ = ["BlocklessLevel"]


class BlocklessLevel(nn.Module):
    """What the base receives, for samples that lost this level: the band of a lower grid, on the base's own.

    An input below the base's resolution is interpolated up to the base, which has never seen one so smooth. With
    such a level it has: in training, dropping it replaces r by U D r, which is what a lower resolution looks like
    there. It has no block and no parameters, changes nothing in evaluation, and the network stays as exact as it
    was. Beyond the paper.

    Args:
        size: the base's grid.
        lower: the grid whose band is left.
        kernel: the network's.

    Shape: (batch, features, *size), unchanged.
    """

    def __init__(self, size: Grid, lower: Grid, kernel: Kernel) -> None:
        super().__init__()
        check_descent(size, lower)
        if all(kernel.band(n) == kernel.band(m) for n, m in zip(size, lower, strict=True)):
            raise ArrnError(
                f"{format_grid(size)} and {format_grid(lower)} hold the same band under {kernel}: a level below the "
                "base must lose something, so choose a smaller one"
            )
        self.size, self.lower = size, lower
        self.down = Resampling(size, lower, kernel)
        self.up = Resampling(lower, size, kernel)

    def forward(self, r: torch.Tensor, survivors: torch.Tensor | int | None = None) -> torch.Tensor:
        """Smooths the samples that are not among the survivors; see `LaplacianResidual.forward`."""
        if survivors is None:
            return r
        if isinstance(survivors, torch.Tensor):
            return torch.where(survivors.view(-1, *[1] * (r.ndim - 1)), r, self.up(self.down(r)))
        if survivors >= r.shape[0]:
            return r
        dropped: torch.Tensor = self.up(self.down(r[survivors:]))
        return torch.cat([r[:survivors], dropped])

    def extra_repr(self) -> str:
        return f"{format_grid(self.size)}, smoothed to {format_grid(self.lower)}"
