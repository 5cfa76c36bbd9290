"""The grid that each sample is brought to before samples are stacked, and stacks of those that share one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch

from arrn.data.examining import Examined, in_chunks
from arrn.data.source import BadSample, Source
from arrn.memory import free_memory
from arrn.signal.grid import Grid, format_grid, grid_of
from arrn.signal.kernels import Kernel, kernel
from arrn.signal.resample import resample

# Of the memory that is free; the rest is for the network and its activations.
_SHARE = 0.4
_LARGE = 16_000_000  # places of a sample


@dataclass(frozen=True)
class Placement:
    """The grid that samples of each size are resampled to, and the kernel that resamples them. Pickles.

    Attributes:
        targets: the grid for each size of samples.
        kernel: the kernel that resamples.
    """

    targets: Mapping[Grid, Grid]
    kernel: Kernel

    @classmethod
    def by(cls, rule: Callable[[Grid], Grid], sizes: Iterable[Grid], smoothing: Kernel) -> Placement:
        """Sends each of `sizes` to ``rule(size)``."""
        return cls({size: rule(size) for size in set(sizes)}, smoothing)

    @classmethod
    def unchanged(cls, sizes: Iterable[Grid]) -> Placement:
        """A placement that changes nothing: each size is its own grid."""
        return cls.by(lambda size: size, sizes, kernel("perfect"))

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        """A sample of shape (channels, *size), resampled to its grid and rounded to the whole numbers of its dtype."""
        target = self.targets[tuple(image.shape[1:])]
        if tuple(image.shape[1:]) == target:
            return image
        # Channel by channel where floats of all of them would take gigabytes.
        parts = torch.split(image, 1) if image[0].numel() > _LARGE else (image,)
        moved = torch.cat([resample(part[None].float(), target, self.kernel)[0] for part in parts])
        stored = torch.iinfo(image.dtype)
        return moved.round_().clamp_(stored.min, stored.max).to(image.dtype)

    def read(self, source: Source, index: int, grid: Grid | None = None) -> torch.Tensor:
        """Reads a sample and resamples it to its grid, as `bring` does.

        Raises:
            BadSample: for a sample that cannot be read, and as `bring` does.
        """
        return self.bring(source.read(index), source, index, grid)

    def bring(self, image: torch.Tensor, source: Source, index: int, grid: Grid | None = None) -> torch.Tensor:
        """Resamples a sample of a source to its grid, which must be `grid` where one is given.

        Raises:
            BadSample: for a sample whose size changed after it was examined.
        """
        size = tuple(image.shape[1:])
        if size not in self.targets or grid not in (None, self.targets[size]):
            raise BadSample(
                source.where(index), f"its size is now {format_grid(size)}: the file was changed during the run"
            )
        return self(image)


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
    """Decodes every sample, resamples it to its grid, and stacks the samples of each grid on `device`.

    Args:
        examined: the samples and their sizes.
        placement: the grid of each size.
        device: where the tensors are to live.
        progress: called with the number of samples read so far.

    Returns:
        The buckets, the largest grid first. The samples of a bucket have the order of the source.
    """
    source, form = examined.source, examined.source.form
    targets = [placement.targets[size] for size in examined.sizes]
    counts = Counter(targets)
    stacks = {grid: torch.empty((counts[grid], form.channels, *grid), dtype=form.dtype) for grid in counts}
    members: dict[Grid, list[int]] = {grid: [] for grid in counts}

    def read(indices: range) -> list[torch.Tensor]:
        return [placement.read(source, index, targets[index]) for index in indices]

    done = 0
    for chunk in in_chunks(read, len(targets)):  # in the order of the source, which may be read fastest so
        for image in chunk:
            grid = targets[done]
            stacks[grid][len(members[grid])] = image
            members[grid].append(done)
            done += 1
        if progress is not None:
            progress(done)
    return [
        Bucket(stacks.pop(grid).to(device), source.labels[torch.tensor(members[grid])].to(device))
        for grid in sorted(counts, reverse=True)
    ]


def fits_in_memory(examined: Examined, placement: Placement, device: torch.device) -> bool:
    """Whether the samples, on their grids, take at most 40% of the device's free memory."""
    return stored_bytes(examined, placement) <= _SHARE * free_memory(device)


def stored_bytes(examined: Examined, placement: Placement) -> int:
    """The memory that the samples take on their grids, as they are stored."""
    form = examined.source.form
    numbers = sum(form.channels * math.prod(placement.targets[size]) for size in examined.sizes)
    return numbers * form.dtype.itemsize
