"""Where samples go before they are stacked: those of many sizes, each on the grid it is meant for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch

from arrn.data.source import BadSample, Source
from arrn.signal.grid import Grid, format_grid
from arrn.signal.kernels import Kernel, kernel
from arrn.signal.resample import resample

__all__ = ["Placement"]


@dataclass(frozen=True)
class Placement:
    """The grid for each size that occurs, and the kernel that takes samples there. Pickles.

    Attributes:
        targets: from the size of a sample to the grid it goes to.
        kernel: how it gets there.
    """

    targets: Mapping[Grid, Grid]
    kernel: Kernel

    @classmethod
    def by(cls, rule: Callable[[Grid], Grid], sizes: Iterable[Grid], smoothing: Kernel) -> Placement:
        """Sends each of `sizes` to ``rule(size)``."""
        return cls({size: rule(size) for size in set(sizes)}, smoothing)

    @classmethod
    def unchanged(cls, sizes: Iterable[Grid]) -> Placement:
        """Leaves samples on their own grids."""
        return cls.by(lambda size: size, sizes, kernel("perfect"))

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        """A sample of shape (channels, *size) on its grid, rounded to the whole numbers it is stored in."""
        target = self.targets[tuple(image.shape[1:])]
        if tuple(image.shape[1:]) == target:
            return image
        moved = resample(image[None].float(), target, self.kernel)[0]
        stored = torch.iinfo(image.dtype)
        return moved.round_().clamp_(stored.min, stored.max).to(image.dtype)

    def read(self, source: Source, index: int, grid: Grid | None = None) -> torch.Tensor:
        """Reads a sample and brings it to its grid, which must be `grid` where one is given.

        Raises:
            BadSample: for one that cannot be read, or is not of the size it had when it was looked at.
        """
        image = source.read(index)
        size = tuple(image.shape[1:])
        if size not in self.targets or grid not in (None, self.targets[size]):
            raise BadSample(source.where(index), f"it has become {format_grid(size)} since it was looked at")
        return self(image)
