"""`LaplacianChain`: running residuals, base and head, as whole and adapted networks both do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import cast

import torch
from torch import nn

from arrn.nn.blockless import BlocklessLevel, lower_ahead
from arrn.nn.dropout import LaplacianDropout
from arrn.nn.residual import LaplacianResidual

__all__ = ["LaplacianChain"]


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
