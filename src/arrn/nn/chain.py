"""`BlocklessLevel`: a level of the ladder without a block, which only Laplacian dropout knows of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import cast

import torch
from torch import nn

from arrn.errors import ArrnError
from arrn.gpu import as_precise_as
from arrn.nn.dropout import LaplacianDropout
from arrn.nn.resampling import Resampling
from arrn.nn.residual import LaplacianResidual
from arrn.signal.grid import Grid, check_descent, format_grid, grid_of
from arrn.signal.kernels import Kernel
from arrn.signal.resample import resample_in_network


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

    def lowered(self, x: torch.Tensor) -> torch.Tensor:
        """An input of the network, on any grid, with what this level drops dropped."""
        grid = grid_of(x)
        lower = tuple(min(n, m) for n, m in zip(grid, self.lower, strict=True))
        if lower == grid:
            return x
        kernel = self.down.kernel
        return resample_in_network(resample_in_network(x, lower, kernel), grid, kernel)

    def extra_repr(self) -> str:
        return f"{format_grid(self.size)}, smoothed to {format_grid(self.lower)}"


def rates_between(p: float, sizes: Sequence[Grid], base: Grid) -> tuple[float, ...]:
    """The p of every level of a ladder, so that each residual is dropped as often as without blockless levels.

    The n levels on a residual's grid, itself the last, have the nth root of p each, which spreads the samples
    over the resolutions in between. Those on the base's grid have p.

    Args:
        p: the probability of dropping a residual when all above it are dropped.
        sizes: the grids of all that can be dropped, blockless levels included.
        base: the base's grid.

    >>> rates_between(0.64, [(8,), (8,), (4,)], base=(4,))
    (0.8, 0.8, 0.64)
    """
    return tuple(p if size == base else p ** (1 / sizes.count(size)) for size in sizes)


def lower_ahead(
    x: torch.Tensor, steps: Sequence[nn.Module], kept: Sequence[torch.Tensor | int | None]
) -> tuple[torch.Tensor, Sequence[torch.Tensor | int | None]]:
    """Does the blockless levels' work on the input, where that is the same.

    A sample that drops to such a level meets only smoothings and projections on its way there. With an exact kernel
    those commute with its own smoothing, which then costs next to nothing: an input has few channels and wants no
    gradient.

    Args:
        x: the input, in the order in which samples are dropped.
        steps: what dropout can drop, in descending order.
        kept: for each of them, how many samples keep it; gates and None are left as they are.

    Returns:
        The input with those samples lowered, and `kept` with nothing left to do for blockless levels.
    """
    counts = [count for count in kept if isinstance(count, int)]
    exact = any(isinstance(step, BlocklessLevel) and step.down.kernel.exact for step in steps)
    if len(counts) < len(steps) or not exact:
        return x, kept
    groups = x.tensor_split(counts)
    with as_precise_as(x):
        lowered = [
            step.lowered(group) if isinstance(step, BlocklessLevel) and group.shape[0] else group
            for step, group in zip(steps, groups[1:], strict=True)
        ]
    left = [None if isinstance(step, BlocklessLevel) else count for step, count in zip(steps, counts, strict=True)]
    return torch.cat([groups[0], *lowered]), left


class LaplacianChain(nn.Module, ABC):
    """A descending run of residuals, then the base, then the head; subclasses say how a signal enters.

    Args:
        residuals: the levels, highest resolution first.
        base: the block on the lowest grid.
        head: base features to logits.
        dropout: drawn anew for each batch in training mode.
        skipped: how many levels of the whole network, those without a block included, lie above the first here.
        blockless: levels that only dropout knows of, highest first; each goes before the residual of its grid, or
            before the base.
    """

    def __init__(
        self,
        residuals: Sequence[LaplacianResidual],
        base: nn.Module,
        head: nn.Module,
        dropout: LaplacianDropout,
        skipped: int = 0,
        blockless: Sequence[BlocklessLevel] = (),
    ) -> None:
        super().__init__()
        self.residuals = nn.ModuleList(residuals)
        self.blockless = nn.ModuleList(blockless)
        self.base = base
        self.head = head
        self.dropout = dropout
        self.skipped = skipped

    @property
    def levels(self) -> list[LaplacianResidual]:
        """The residuals, highest resolution first, as a plain list."""
        return cast(list[LaplacianResidual], list(self.residuals))

    def droppable(self, level: int = 0) -> list[LaplacianResidual | BlocklessLevel]:
        """All that dropout can drop from residual `level` on, in descending order: residuals and blockless levels."""
        blockless = cast(list[BlocklessLevel], list(self.blockless))
        found: list[LaplacianResidual | BlocklessLevel] = []
        for residual in self.levels[level:]:
            found += [*(lower for lower in blockless if lower.size == residual.size), residual]
        above = {residual.size for residual in self.levels}
        return [*found, *(lower for lower in blockless if lower.size not in above)]

    @abstractmethod
    def _enter(self, x: torch.Tensor, level: int) -> torch.Tensor:
        """The signal A_{n-1} ... A_0 x on the grid of residual `level` (the base's after the last)."""

    def _descend(
        self, x: torch.Tensor, level: int, visited: list[torch.Tensor] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Runs the residuals from `level` on and the base.

        Args:
            x: the input signal.
            level: the first residual to run.
            visited: where given, collects what each level received, and last what the base gave.

        Returns:
            The base's output, and the order in which the batch was taken (None: as it was).
        """
        steps = self.droppable(level)
        count = self.skipped + len(self.residuals) + len(self.blockless)
        survivors = self.dropout(x.shape[0], count, x.device, first=count - len(steps))
        order = None if survivors is None else survivors.order
        kept: Sequence[torch.Tensor | int | None] = [None] * len(steps) if survivors is None else survivors.levels
        x, kept = lower_ahead(x if order is None else x[order], steps, kept)
        r = self._enter(x, level)
        for step, here, next_ in zip(steps, kept, [*kept, None][1:], strict=True):
            if isinstance(step, BlocklessLevel):
                r = step(r, here, next_)
                continue
            if visited is not None:
                visited.append(r)
            r = step(r, here)
        if visited is not None:
            visited.append(r)
        r = self.base(r)
        if visited is not None:
            visited.append(r)
        return r, order

    def _logits(self, x: torch.Tensor, level: int) -> torch.Tensor:
        features, order = self._descend(x, level)
        return _restore(self.head(features), order)

    def _features(self, x: torch.Tensor, level: int) -> torch.Tensor:
        return _restore(*self._descend(x, level))

    def _level_features(self, x: torch.Tensor, level: int) -> list[torch.Tensor]:
        visited: list[torch.Tensor] = []
        _, order = self._descend(x, level, visited)
        return [_restore(features, order) for features in visited]


def _restore(permuted: torch.Tensor, order: torch.Tensor | None) -> torch.Tensor:
    """Puts a batch that was taken in `order` back as it was."""
    if order is None:
        return permuted
    return torch.empty_like(permuted).index_copy(0, order, permuted)
