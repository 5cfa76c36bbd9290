"""Grids: how many cell-centred samples a signal has along each axis of its domain [0, 1]^d."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import torch

from arrn.errors import ArrnError
from arrn.runtime.levels import Grid as Grid
from arrn.runtime.levels import covers as covers
from arrn.runtime.levels import format_grid as format_grid
from arrn.runtime.levels import level_at_least as level_at_least
from arrn.runtime.levels import level_at_most as level_at_most

Size: TypeAlias = int | Sequence[int]
"""What users write: one number for every axis, or one number per axis."""


def as_count(value: object) -> int:
    """`value` as the number of samples along one axis."""
    try:
        count = operator.index(value)  # type: ignore[arg-type]  # whatever has no __index__ is refused below
    except TypeError:
        raise ArrnError(f"a grid size must be a positive whole number, got {value!r}") from None
    if count < 1:
        raise ArrnError(f"a grid size must be at least 1, got {count}")
    return count


def as_grid(size: Size, ndim: int) -> Grid:
    """`size` as one count for each of `ndim` axes.

    >>> as_grid(32, 2)
    (32, 32)
    >>> as_grid((32, 24), 2)
    (32, 24)
    """
    if ndim not in (1, 2, 3):
        raise ArrnError(f"signals have 1, 2 or 3 axes, got {ndim}")
    if isinstance(size, Iterable) and not isinstance(size, str | torch.Tensor):
        grid = tuple(as_count(count) for count in size)
        if len(grid) != ndim:
            raise ArrnError(f"the size {grid} has {len(grid)} axes, but the signal has {ndim}")
        return grid
    return (as_count(size),) * ndim


def as_sizes(sizes: Iterable[Size]) -> tuple[Size, ...]:
    """The sizes of a ladder as the user wrote them; refuses what is no sequence, or empty."""
    if isinstance(sizes, str) or not isinstance(sizes, Iterable):
        raise ArrnError(f"a ladder is a sequence of sizes such as (32, 16, 8), got {sizes!r}")
    given = tuple(sizes)
    if not given:
        raise ArrnError("a ladder needs at least one size, such as (32, 16, 8); got none")
    return given


def as_ladder(sizes: Iterable[Size], ndim: int) -> tuple[Grid, ...]:
    """A descending ladder of grids: none grows along any axis, and each shrinks along some axis.

    >>> as_ladder((32, 16, 8), 2)
    ((32, 32), (16, 16), (8, 8))
    """
    ladder = tuple(as_grid(size, ndim) for size in as_sizes(sizes))
    for upper, lower in itertools.pairwise(ladder):
        check_descent(upper, lower)
    return ladder


def check_descent(upper: Grid, lower: Grid) -> None:
    """Refuses a step of a ladder that grows along an axis or shrinks along none."""
    if not covers(upper, lower) or upper == lower:
        raise ArrnError(
            f"a ladder must decrease: {format_grid(lower)} follows {format_grid(upper)}, but no axis "
            "may grow and at least one must shrink"
        )


def format_sizes(grids: Sequence[Grid]) -> tuple[Size, ...]:
    """Grids as users write them: numbers where all are squares or cubes, tuples otherwise.

    >>> format_sizes(((32, 32), (16, 16)))
    (32, 16)
    """
    if all(len(set(grid)) == 1 for grid in grids):
        return tuple(grid[0] for grid in grids)
    return tuple(grids)


def check_tensor(x: object) -> None:
    """Refuses what is no tensor, an array for example."""
    if not isinstance(x, torch.Tensor):
        raise ArrnError(f"expected a torch.Tensor, got {type(x).__name__}: torch.as_tensor makes one of an array")


def check_signal(
    x: torch.Tensor, ndim: int | None = None, channels: int | None = None, weight: torch.Tensor | None = None
) -> Grid:
    """The grid of `x`, shaped (batch, channels, *space); refuses what is no such signal, or not of `weight`'s dtype."""
    check_tensor(x)
    if x.is_nested:
        raise ArrnError("expected a dense tensor, got a nested one: put samples of each size into a batch of their own")
    if x.layout != torch.strided:
        raise ArrnError(f"expected a dense tensor, got one of layout {x.layout}: x.to_dense() makes one")
    layout = {1: "length", 2: "height, width", 3: "depth, height, width"}
    if ndim is None and not 3 <= x.ndim <= 5:
        raise ArrnError(
            f"expected a signal of shape (batch, channels, *space) with 1 to 3 axes of space, "
            f"got shape {tuple(x.shape)}"
        )
    if ndim is not None and x.ndim != ndim + 2:
        count = "channels" if channels is None else channels
        raise ArrnError(f"expected shape (batch, {count}, {layout[ndim]}), got {tuple(x.shape)}")
    if channels is not None and x.shape[1] != channels:
        raise ArrnError(f"expected {channels} channels, got {x.shape[1]} in shape {tuple(x.shape)}")
    if not x.is_floating_point():
        raise ArrnError(
            f"expected floating-point samples, got {x.dtype}: convert and normalise first, for example x.float() / 255"
        )
    if weight is not None and x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise ArrnError(
            f"expected samples of {weight.dtype}, as the network's weights, got {x.dtype}: either x.to({weight.dtype}) "
            f"or network.to({x.dtype})"
        )
    if weight is not None:
        check_device(x, weight)
    grid = grid_of(x)
    if 0 in grid:
        raise ArrnError(f"every axis of space needs at least 1 sample, got shape {tuple(x.shape)}")
    return grid


def check_device(x: torch.Tensor, weight: torch.Tensor) -> None:
    """Refuses a signal on another kind of device than the weights that it meets."""
    if x.device.type != weight.device.type:
        hint = (
            "that device holds no numbers" if x.is_meta else f"either x.to({weight.device.type!r}) or move the network"
        )
        raise ArrnError(f"the network is on {weight.device.type}, but the signal is on {x.device.type}: {hint}")


def grid_of(x: torch.Tensor) -> Grid:
    """The grid of a signal of shape (batch, channels, *space), as plain numbers.

    Tracers may hold a size open; matrices depend on it, so `operator.index` has them settle for what it is.
    """
    return tuple(operator.index(n) for n in x.shape[2:])
