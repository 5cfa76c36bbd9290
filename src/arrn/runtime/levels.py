"""Grids, and the level of a ladder of grids at which an input of some size enters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from ..errors import unknown_name

Grid: TypeAlias = tuple[int, ...]
"""The number of samples along each axis; sample i of N sits at (i + 1/2)/N."""

Policy: TypeAlias = Literal["exact", "cheap"]
"""Which level an input between two grids enters at: the next higher grid's, or the next lower one's."""


def as_policy(policy: str) -> Policy:
    """The policy of that name; refuses others."""
    if policy == "exact":
        return "exact"
    if policy == "cheap":
        return "cheap"
    raise unknown_name("policy", policy, ("exact", "cheap"))


def covers(grid: Grid, other: Grid) -> bool:
    """Whether `grid` has at least as many samples as `other` along every axis."""
    return all(n >= m for n, m in zip(grid, other, strict=True))


def level_at_least(ladder: Sequence[Grid], grid: Grid) -> int:
    """The lowest level whose grid holds all that `grid` holds; the top where none does."""
    for n in range(len(ladder) - 1, -1, -1):
        if covers(ladder[n], grid):
            return n
    return 0


def level_at_most(ladder: Sequence[Grid], grid: Grid) -> int:
    """The highest level whose grid is no finer than `grid` along any axis; the base where none is."""
    for n, rung in enumerate(ladder):
        if covers(grid, rung):
            return n
    return len(ladder) - 1


def level_of(ladder: Sequence[Grid], grid: Grid, policy: Policy) -> int:
    """The level at which an input of the size `grid` enters a ladder, highest grid first, by a policy.

    >>> [level_of(((32, 32), (16, 16), (8, 8)), (20, 12), policy) for policy in ("exact", "cheap")]
    [0, 2]
    """
    return level_at_least(ladder, grid) if policy == "exact" else level_at_most(ladder, grid)


def format_grid(grid: Grid) -> str:
    """`32` for a square or cube, `32x24` where axes differ."""
    return str(grid[0]) if len(set(grid)) == 1 else "x".join(map(str, grid))
