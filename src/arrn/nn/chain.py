"""`LaplacianChain`: a descending run of residuals, then the base, then the head."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias, cast

import torch
from torch import nn

from arrn.nn.constancy import gives_map, looks_at_gates
from arrn.nn.dropout import BlocklessLevel, LaplacianDropout, Lowering, lower_ahead, lower_dropped
from arrn.nn.residual import LaplacianResidual
from arrn.signal.grid import grid_of

Entrance: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""Takes an input to the grid and the features of a level."""

Skipped: TypeAlias = Callable[[torch.Tensor, int], torch.Tensor]
"""Takes an input to the grid and the features of the level of that number, though it enters below."""


class LaplacianChain(nn.Module):
    """A descending run of residuals, then the base, then the head: what a whole network and a part of it share.

    Args:
        residuals: the levels, highest resolution first.
        base: the block on the lowest grid.
        head: base features to logits.
        dropout: drawn anew for each batch in training mode.
        skipped: how many steps of the whole network, those without a block included, lie above the first here.
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
        # What dropout can drop on each grid, the base's last: by place, since a module may be wrapped or replaced.
        sizes = [residual.size for residual in residuals]
        self._places = [[("residuals", n)] for n in range(len(sizes))] + [[]]
        for n, level in reversed(list(enumerate(blockless))):
            on_grid = sizes.index(level.size) if level.size in sizes else -1
            self._places[on_grid].insert(0, ("blockless", n))

    @property
    def levels(self) -> list[LaplacianResidual]:
        """The residuals, highest resolution first, as a plain list."""
        return cast(list[LaplacianResidual], list(self.residuals))

    def droppable(self, level: int = 0) -> list[LaplacianResidual | BlocklessLevel]:
        """All that dropout can drop from residual `level` on, in descending order: residuals and blockless levels."""
        return [getattr(self, kind)[n] for places in self._places[level:] for kind, n in places]

    def _descend(self, x: torch.Tensor, level: int, enter: Entrance) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Runs the residuals from `level` on and the base.

        Args:
            x: the input signal.
            level: the first residual to run.
            enter: takes an input there.

        Returns:
            The base's output, and the order in which the batch was taken (None: as it was).
        """
        steps = self.droppable(level)
        x, kept, order = self._draw(x, steps, lower_ahead)
        r = enter(x)
        opened = 0
        for step, here, below in zip(steps, kept, [*kept, None][1:], strict=True):
            if isinstance(step, BlocklessLevel):
                r = step(r, here, below)
            else:
                r = step(r, here, opened=opened)
                opened = here if isinstance(here, int) else 0
        return self.base(r, opened=opened) if opened and looks_at_gates(self.base) else self.base(r), order

    def _draw(
        self, x: torch.Tensor, steps: Sequence[nn.Module], lower: Lowering
    ) -> tuple[torch.Tensor, Sequence[torch.Tensor | int | None], torch.Tensor | None]:
        """The batch as dropout takes it, which samples keep each step, and the order of the batch (None: as it was)."""
        count = self.skipped + len(self.residuals) + len(self.blockless)
        survivors = None
        if self.dropout.training:
            survivors = self.dropout(x.shape[0], count, x.device, first=count - len(steps))
        if survivors is None:
            return x, [None] * len(steps), None
        x, kept = lower(x if survivors.order is None else x[survivors.order], steps, survivors.levels)
        return x, kept, survivors.order

    def _logits(self, x: torch.Tensor, level: int, enter: Entrance) -> torch.Tensor:
        features, order = self._descend(x, level, enter)
        return _restore(self.head(features), order)

    def _features(self, x: torch.Tensor, level: int, enter: Entrance) -> torch.Tensor:
        return _restore(*self._descend(x, level, enter))

    def _maps(
        self, x: torch.Tensor, level: int, enter: Entrance, skipped: Skipped, wanted: Collection[int] | None
    ) -> list[torch.Tensor]:
        """The last signal on each grid, highest first; of those whose numbers are `wanted`, None for all.

        Args:
            x: the input signal.
            level: the first residual to run.
            enter: takes an input there.
            skipped: takes an input to the grid and the features of a level above, by its number.
            wanted: numbers of maps. What lies below the last one does not run.
        """
        steps = self.droppable(level)
        x, kept, order = self._draw(x, steps, lower_dropped)
        wanted = range(len(self.levels) + 2) if wanted is None else wanted
        maps = [self.levels[n].map_without_block(skipped(x, n)) for n in range(level) if n in wanted]
        running = [(step, here) for step, here in zip(steps, kept, strict=True) if not isinstance(step, BlocklessLevel)]
        r = enter(x)
        for n, (step, here) in enumerate(running, start=level):
            if n > max(wanted):
                break
            r = step(r, here, maps) if n in wanted else step(r, here)
        else:
            maps += self._base_maps(r, wanted)
        return [_restore(each, order) for each in maps]

    def _base_maps(self, r: torch.Tensor, wanted: Collection[int]) -> list[torch.Tensor]:
        """The last signal on the base's grid and, where the base ends on a lower one, the last one there."""
        if max(wanted) < len(self.levels):
            return []
        before: list[torch.Tensor] = []
        features = self.base(r, before) if gives_map(self.base) else self.base(r)
        found = [features] if grid_of(features) == grid_of(r) else [*(before or [r]), features]
        return [each for n, each in enumerate(found, start=len(self.levels)) if n in wanted]


def _restore(permuted: torch.Tensor, order: torch.Tensor | None) -> torch.Tensor:
    """Puts a batch that was taken in `order` back as it was."""
    if order is None:
        return permuted
    return torch.empty_like(permuted).index_copy(0, order, permuted)
