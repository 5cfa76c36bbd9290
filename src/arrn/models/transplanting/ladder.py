"""The grids that a cut network gives, and whether a ladder of residuals can be built on them."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from arrn.errors import ArrnError
from arrn.models.transplanting.cutting import Pieces
from arrn.nn.constancy import output_shape
from arrn.signal.grid import Grid, format_grid
from arrn.signal.kernels import Kernel

__all__ = ["check_ladder", "discard"]


def discard(pieces: Pieces, count: int) -> Pieces:
    """The network without its first `count` runs."""
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < len(pieces.runs):
        raise ArrnError(
            f"skip_first must be a whole number from 0 to {len(pieces.runs) - 1}, since one of this network's "
            f"{len(pieces.runs)} residuals must stay; got {count!r}"
        )
    return replace(pieces, runs=pieces.runs[count:], features=pieces.features[count:])


def check_ladder(pieces: Pieces, grid: Grid, kernel: Kernel) -> tuple[Grid, ...]:
    """The grids of the residuals and of the base for inputs on `grid`.

    Raises:
        ArrnError: when the base would be left with a constant, with a size that would do; or when the head
            takes another grid.
    """
    ladder = _ladder(pieces, grid)
    if _holds(ladder, kernel):
        _check_head(pieces, ladder[-1])
        return ladder
    larger = [tuple(n * 2**k for n in grid) for k in range(1, 8)]
    enough = next((size for size in larger if _holds(_ladder(pieces, size), kernel)), None)
    advice = f"; {format_grid(enough)} would do" if enough else ""
    raise ArrnError(
        f"size {format_grid(grid)} is too small for this architecture, whose grids would be "
        f"{' -> '.join(map(format_grid, ladder))}: the base must hold more than a constant{advice}"
    )


def _check_head(pieces: Pieces, grid: Grid) -> None:
    width, end = output_shape(pieces.base, pieces.features[-2], grid)
    head = copy.deepcopy(pieces.head).to("meta").eval()
    dtype = next((parameter.dtype for parameter in head.parameters()), torch.get_default_dtype())
    try:
        head(torch.empty(2, width, *end, device="meta", dtype=dtype))
    except RuntimeError as error:
        raise ArrnError(
            f"the network's head does not take a base of {format_grid(end)}, which is what skip_first leaves: {error}"
        ) from error


def _ladder(pieces: Pieces, grid: Grid) -> tuple[Grid, ...]:
    ladder = [grid]
    for run, features in zip(pieces.runs, pieces.features, strict=False):
        ladder.append(output_shape(run, features, ladder[-1])[1])
    return tuple(ladder)


def _holds(ladder: tuple[Grid, ...], kernel: Kernel) -> bool:
    return len(set(ladder)) == len(ladder) and any(kernel.band(n) > 1 for n in ladder[-1])
