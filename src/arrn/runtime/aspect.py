"""Rectangles for a network whose grids have other proportions: stretched, padded by mirrored edges, or cropped."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..errors import ArrnError, unknown_name
from .files import Array, check_pixels
from .levels import Grid

ASPECTS = ("stretch", "pad", "crop")
"""What may be done with a sample whose proportions are not those of the network's grids."""


def as_aspect(mode: str) -> str:
    """One of `ASPECTS`; refuses others."""
    if mode not in ASPECTS:
        raise unknown_name("aspect", mode, ASPECTS)
    return mode


@dataclass(frozen=True)
class Aspect:
    """Gives samples the proportions of a network's grids, on their own samples: nothing is resampled here.

    "pad" adds the same number of samples, to within one, on either side of an axis, mirrored at the edge (half-sample
    symmetric). The padded signal is the one that the network's symmetric boundary goes on with, so padding adds no
    edge and nothing to the signal's band. "crop" keeps the middle. "stretch" leaves samples as they are; each axis is
    then resampled to the grid by itself.

    Attributes:
        mode: one of `ASPECTS`.
        grid: whose proportions samples get: the network's top grid.

    >>> Aspect("pad", (32, 32)).frame((20, 30)), Aspect("crop", (32, 32)).frame((20, 30))
    ((30, 30), (20, 20))
    >>> Aspect("crop", (64, 32)).frame((30, 30)), Aspect("stretch", (32, 32)).frame((20, 30))
    ((30, 15), (20, 30))
    """

    mode: str
    grid: Grid

    def __post_init__(self) -> None:
        as_aspect(self.mode)

    def frame(self, size: Grid) -> Grid:
        """The size that a sample of `size` has afterwards, to the nearest whole number, at least 1 along each axis."""
        if self.mode == "stretch":
            return size
        self._check_axes(size)
        shares = [n / side for n, side in zip(size, self.grid, strict=True)]
        if self.mode == "pad":
            return tuple(max(n, round(max(shares) * side)) for n, side in zip(size, self.grid, strict=True))
        return tuple(min(n, max(1, round(min(shares) * side))) for n, side in zip(size, self.grid, strict=True))

    def places(self, size: Grid) -> list[Array]:
        """For each axis, which of a sample's own places stands at each place of the framed one.

        >>> [places.tolist() for places in Aspect("pad", (8, 8)).places((6, 3))]
        [[0, 1, 2, 3, 4, 5], [0, 0, 1, 2, 2, 1]]
        """
        found = []
        for have, want in zip(size, self.frame(size), strict=True):
            place = np.arange(want) - (want - have) // 2  # negative before the edge; of a crop, from the middle on
            place %= 2 * have
            found.append(np.minimum(place, 2 * have - 1 - place))
        return found

    def __call__(self, samples: Array) -> Array:
        """A sample of shape (channels, *size) as it is framed; the same array where nothing changes."""
        size = tuple(samples.shape[1:])
        if self.frame(size) == size:
            return samples
        for axis, place in enumerate(self.places(size), start=1):
            samples = np.take(samples, place, axis=axis)
        return samples

    def refusal(self, size: Grid, most: int | None = None) -> str | None:
        """Why a sample of `size` cannot be framed: padded, a long strip may become a huge square. None where it can.

        Args:
            size: its own.
            most: pixels, or voxels, that are taken; None is `MOST_PIXELS`.
        """
        wrong = check_pixels(self.frame(size), most) if self.mode == "pad" else None
        return None if wrong is None else f"padded to the network's proportions, {wrong}"

    def distortion(self, size: Grid) -> float:
        """How many times more one axis would be stretched than another, 1 for a sample of the grid's proportions.

        >>> Aspect("stretch", (32, 32)).distortion((20, 30))
        1.5
        """
        self._check_axes(size)
        shares = [n / side for n, side in zip(size, self.grid, strict=True)]
        return max(shares) / min(shares)

    def kept(self, size: Grid) -> float:
        """The part of a sample that is left after cropping, or the part of a padded one that is its own."""
        before, after = math.prod(size), math.prod(self.frame(size))
        return min(before, after) / max(before, after)

    def _check_axes(self, size: Grid) -> None:
        if len(size) != len(self.grid):
            raise ArrnError(f"a sample of size {size} has another number of axes than the grid {self.grid}")
