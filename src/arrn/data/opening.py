"""From examined samples to batches: in memory where they fit, from disk where they do not."""

from __future__ import annotations

from collections.abc import Callable

import torch

from arrn.data.batches import Batches, MemoryBatches, StreamedBatches
from arrn.data.buckets import fits_in_memory, load_buckets
from arrn.data.examining import Examined
from arrn.data.placement import Placement
from arrn.teamwork import Team

__all__ = ["open_batches"]


def open_batches(
    examined: Examined,
    placement: Placement,
    batch_size: int,
    device: torch.device,
    seed: int = 0,
    stream: bool | None = None,
    workers: int = 2,
    progress: Callable[[int], None] | None = None,
    team: Team | None = None,
) -> Batches:
    """Batches of the samples on the grids that `placement` gives them.

    Args:
        examined: the samples and their sizes.
        placement: the grid of each size.
        batch_size: samples per batch, at most.
        device: where batches are made.
        seed: of the order of epochs.
        stream: read from disk (True), keep in memory (False), or whichever the free memory allows (None).
        workers: processes that read from disk.
        progress: told the number of samples read into memory so far.
        team: the processes that share the batches.
    """
    if stream is None:
        stream = not fits_in_memory(examined, placement, device)
    batches: Batches
    if stream:
        batches = StreamedBatches(examined, placement, batch_size, seed, device, workers)
    else:
        batches = MemoryBatches(load_buckets(examined, placement, device, progress), batch_size, seed)
    if team is not None:
        batches.team = team
    return batches
