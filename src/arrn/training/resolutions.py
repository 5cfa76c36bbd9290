"""Random-resolution training: every batch is shared out over several lower resolutions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import torch
from torch import nn

from arrn.models.entry import entry_grid, entry_kernel
from arrn.models.fixed import ResampledNetwork
from arrn.nn.arrn import ARRN
from arrn.signal.grid import Grid, grid_of
from arrn.signal.resample import resample

__all__ = ["share_out", "uses_all_levels"]


def share_out(
    model: nn.Module, images: torch.Tensor, labels: torch.Tensor, resolutions: Sequence[int]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Lowers equal shares of a batch to each of `resolutions`, by the perfect kernel, as evaluation does.

    Shares that enter the network on the same grid are brought there and stacked, so that the batch
    norms of a fixed-resolution network see all resolutions at once, as they will in use. A
    switchable network gets one batch for each of its sizes.

    Args:
        model: the network that is trained.
        images: normalised, shape (batch, channels, *grid).
        labels: shape (batch,).
        resolutions: none above the grid; those above are left as they are.

    Returns:
        Images and labels, for each grid.
    """
    entering: defaultdict[Grid, list[tuple[torch.Tensor, torch.Tensor]]] = defaultdict(list)
    size = grid_of(images)
    kernel = entry_kernel(model)
    # Batches come shuffled, so shares in the order of the batch are random ones.
    shares = zip(resolutions, images.tensor_split(len(resolutions)), labels.tensor_split(len(resolutions)), strict=True)
    for resolution, share, share_labels in shares:
        if len(share) == 0:
            continue
        low = _lowered(size, resolution)
        grid = entry_grid(model, low)
        entering[grid].append((resample(resample(share, low), grid, kernel), share_labels))
    return [(torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])) for parts in entering.values()]


def uses_all_levels(model: nn.Module, grids: Iterable[Grid], resolutions: Sequence[int]) -> bool:
    """Whether a batch on any of `grids`, shared out over `resolutions`, runs every part of the network.

    An ARRN skips the levels above the grid on which its input enters; a switchable network runs the batch norms of
    that grid alone.
    """
    needed = model.grids[:1] if isinstance(model, ARRN) else ()
    if isinstance(model, ResampledNetwork):
        needed = model.grids
    entered = (
        {entry_grid(model, _lowered(grid, resolution)) for resolution in resolutions or (max(grid),)} for grid in grids
    )
    return all(found.issuperset(needed) for found in entered)


def _lowered(size: Grid, resolution: int) -> Grid:
    return tuple(min(resolution, n) for n in size)
