"""Samples in memory: compact tensors on the device, one bucket for each grid."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import torch

from arrn.data.chunks import in_chunks
from arrn.data.examining import Examined
from arrn.data.placement import Placement
from arrn.signal.grid import Grid, grid_of

__all__ = ["Bucket", "fits_in_memory", "load_buckets"]

# Of the memory that is free; the rest is for the network and its activations.
_SHARE = 0.4


@dataclass(frozen=True)
class Bucket:
    """The samples of one grid.

    Attributes:
        images: uint8 (sound: int16) of shape (samples, channels, *grid).
        labels: int64 of shape (samples,).
    """

    images: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def grid(self) -> Grid:
        """The grid of its samples."""
        return grid_of(self.images)


def load_buckets(
    examined: Examined,
    placement: Placement,
    device: torch.device,
    progress: Callable[[int], None] | None = None,
) -> list[Bucket]:
    """Decodes every sample, brings it to its grid, and stacks each grid's on `device`.

    Args:
        examined: the samples and their sizes.
        placement: the grid of each size.
        device: where the tensors are to live.
        progress: told the number of samples read so far.

    Returns:
        The buckets, largest grid first, samples in the order of the source.
    """
    source = examined.source
    members: defaultdict[Grid, list[int]] = defaultdict(list)
    for index, size in enumerate(examined.sizes):
        members[placement.targets[size]].append(index)
    buckets, done = [], 0
    for grid in sorted(members, reverse=True):
        indices = members[grid]
        images = torch.empty((len(indices), source.form.channels, *grid), dtype=source.form.dtype)

        def read(places: range, grid: Grid = grid, indices: list[int] = indices) -> list[torch.Tensor]:
            return [placement.read(source, indices[place], grid) for place in places]

        filled = 0
        for chunk in in_chunks(read, len(indices)):
            images[filled : filled + len(chunk)] = torch.stack(chunk)
            filled, done = filled + len(chunk), done + len(chunk)
            if progress is not None:
                progress(done)
        buckets.append(Bucket(images.to(device), source.labels[indices].to(device)))
    return buckets


def fits_in_memory(examined: Examined, placement: Placement, device: torch.device) -> bool:
    """Whether the samples, on their grids, take a modest share of the device's free memory."""
    form = examined.source.form
    numbers = sum(form.channels * math.prod(placement.targets[size]) for size in examined.sizes)
    need = numbers * form.dtype.itemsize
    return need <= _SHARE * _free_memory(device)


def _free_memory(device: torch.device) -> float:
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return 2.0**31  # a system that does not tell: two gigabytes are safe almost everywhere
