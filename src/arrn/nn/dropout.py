"""`LaplacianDropout`: dropping a random prefix of the highest levels while training; and levels without a block."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from numbers import Real
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import torch
from torch import nn

from arrn.errors import ArrnError, unknown_name
from arrn.gpu import as_precise_as
from arrn.nn.layers import Resampling
from arrn.signal.grid import Grid, Size, as_ladder, check_descent, format_grid, grid_of, level_at_least
from arrn.signal.kernels import Kernel
from arrn.signal.resample import resample_in_network

Draw: TypeAlias = Literal["sample", "stratified", "batch"]

logger = logging.getLogger(__name__)


class Survivors(NamedTuple):
    """Which samples each level processes.

    Attributes:
        order: the batch is first taken in this order (None: as it is).
        levels: for each level, a gate of shape (batch,) that multiplies the difference, or how many
            samples, counted from the first, the level processes.
    """

    order: torch.Tensor | None
    levels: tuple[torch.Tensor | int, ...]


class LaplacianDropout(nn.Module):
    """Draws, for each training batch, the levels that each sample skips: always the highest ones.

    Level n is kept if a higher level was kept, and otherwise with probability 1 - p_n (the paper's
    chain). So level n is kept with probability q_n = 1 - p_1 ... p_n. With a perfect kernel,
    dropping levels is the same as lowering the resolution of the input. Evaluation mode drops nothing.

    Args:
        p: the probability of dropping, one number for every level or one per level, each in [0, 1].
        draw: ``"sample"``, one draw per sample, which gates the difference (the paper's form);
            ``"stratified"``, the batch is shuffled and level n processes the first round(B q_n)
            samples, so the dropped work is not done and batch norm sees no zeroed samples;
            ``"batch"``, one draw for the whole batch, whose dropped blocks are not run.
        unbiased: with ``"stratified"``, floor(B q_n + u) with one u ~ U(0, 1) instead of rounding:
            exact probabilities for small batches, but the shapes change from batch to batch.
        shuffled: with ``"stratified"``, whether the samples of a batch are in random order already. If so, the first
            samples of a batch keep the most levels.

    >>> LaplacianDropout((0.5, 0.5)).survival(levels=2)
    (0.5, 0.75)
    """

    def __init__(
        self, p: float | Sequence[float], draw: Draw = "stratified", unbiased: bool = False, shuffled: bool = False
    ) -> None:
        super().__init__()
        rates = tuple(p) if isinstance(p, Sequence) else (p,)
        for rate in rates:
            if isinstance(rate, bool) or not isinstance(rate, Real) or not 0 <= rate <= 1:
                raise ArrnError(f"the dropout probability p must be in [0, 1], got {rate!r} in p={p!r}")
        if draw not in ("sample", "stratified", "batch"):
            raise unknown_name("draw", draw, ("sample", "stratified", "batch"))
        self.p: float | tuple[float, ...] = tuple(map(float, rates)) if isinstance(p, Sequence) else float(p)
        self.draw: Draw = draw
        self.unbiased = unbiased
        self.shuffled = shuffled
        self._warned = False

    def rates(self, levels: int) -> tuple[float, ...]:
        """p for each of `levels` levels."""
        if isinstance(self.p, float):
            return (self.p,) * levels
        if len(self.p) != levels:
            raise ArrnError(f"p has {len(self.p)} values, {self.p}, but there are {levels} levels to drop")
        return self.p

    def survival(self, levels: int, first: int = 0) -> tuple[float, ...]:
        """q_n: the probability that each level from `first` on is kept, when the input enters at `first`."""
        kept, dropped = [], 1.0
        for rate in self.rates(levels)[first:]:
            dropped *= rate
            kept.append(1.0 - dropped)
        return tuple(kept)

    def forward(self, batch: int, levels: int, device: torch.device, first: int = 0) -> Survivors | None:
        """Draws the survivors among `batch` samples that enter at level `first`; None keeps all.

        Randomness comes from torch's generator of `device` ("sample" and "stratified") or of the CPU
        ("batch" and `unbiased`, whose outcome decides what runs).
        """
        survival = self.survival(levels, first)
        if not self.training or all(q == 1.0 for q in survival):
            return None
        if self.draw == "stratified":
            # A random order by sorting: Inductor (2.11) trips over randperm followed by indexing.
            order = None if self.shuffled else torch.rand(batch, device=device).argsort()
            return Survivors(order, self._counts(batch, survival))
        # One uniform number settles the whole chain: kept levels are nested, and u < q_n has
        # probability q_n.
        if self.draw == "sample":
            u = torch.rand(batch, device=device)
            return Survivors(None, tuple(u < q for q in survival))
        chosen = float(torch.rand((), device="cpu"))
        return Survivors(None, tuple(batch if chosen < q else 0 for q in survival))

    def _counts(self, batch: int, survival: Sequence[float]) -> tuple[int, ...]:
        if self.unbiased:
            offset = float(torch.rand((), device="cpu"))
            return tuple(min(batch, math.floor(batch * q + offset)) for q in survival)
        counts = tuple(round(batch * q) for q in survival)
        starved = any(k == 0 < q for k, q in zip(counts, survival, strict=True))
        if starved and not self._warned and not torch.compiler.is_compiling():
            self._warned = True
            logger.warning(
                "a batch of %d is too small for p=%s: rounding never trains the highest levels; "
                "use larger batches, or LaplacianDropout(p, unbiased=True)",
                batch,
                self.p,
            )
        return counts

    def extra_repr(self) -> str:
        return f"p={self.p}, draw={self.draw!r}" + (", unbiased=True" if self.unbiased else "")


class BlocklessLevel(nn.Module):
    """A level without a block: in training it smooths the signal of some samples to the band of a lower grid.

    An input whose resolution lies between two grids, or below the base's, is interpolated up to the next grid. Without
    such a level, the block on this grid never sees such a smooth signal in training. Dropping to this level replaces r
    by U D r, which is the signal of such an input. The level has no block and no parameters, and has no effect in
    evaluation, so the network stays exact. Beyond the paper.

    Args:
        size: the grid of the residual, or of the base, that follows.
        lower: the grid whose band is kept.
        kernel: the kernel of the network.

    Shape: (batch, features, *size), unchanged.
    """

    def __init__(self, size: Grid, lower: Grid, kernel: Kernel) -> None:
        super().__init__()
        check_descent(size, lower)
        if all(kernel.band(n) == kernel.band(m) for n, m in zip(size, lower, strict=True)):
            raise ArrnError(
                f"{format_grid(size)} and {format_grid(lower)} hold the same band under {kernel}: a level without "
                "a block must lose some detail, so choose a smaller size"
            )
        self.size, self.lower = size, lower
        self.down = Resampling(size, lower, kernel)
        self.up = Resampling(lower, size, kernel)

    def forward(
        self,
        r: torch.Tensor,
        survivors: torch.Tensor | int | None = None,
        next_survivors: torch.Tensor | int | None = None,
    ) -> torch.Tensor:
        """Smooths the samples that lose this level, except those that also lose the next level, which smooths them.

        Args:
            r: shape (batch, features, *size).
            survivors: the survivors of this level, as in `LaplacianResidual.forward`; None keeps all samples.
            next_survivors: the survivors of the level below, in the same form; None if there is no level below.
        """
        if survivors is None:
            return r
        if isinstance(survivors, torch.Tensor):
            dropped = ~survivors
            if isinstance(next_survivors, torch.Tensor):
                dropped = dropped & next_survivors
            return torch.where(dropped.view(-1, *[1] * (r.ndim - 1)), self.up(self.down(r)), r)
        end = r.shape[0] if next_survivors is None else min(int(next_survivors), r.shape[0])
        if survivors >= end:
            return r
        smooth: torch.Tensor = self.up(self.down(r[survivors:end]))
        return torch.cat([r[:survivors], smooth, r[end:]])

    def lowered(self, x: torch.Tensor) -> torch.Tensor:
        """An input of the network, on any grid, without the frequencies that this level drops."""
        return _in_the_band_of(self.lower, x, self.down.kernel)

    def extra_repr(self) -> str:
        return f"{format_grid(self.size)}, smoothed to {format_grid(self.lower)}"


def blockless_levels(ladder: Sequence[Grid], sizes: Sequence[Size], kernel: Kernel) -> list[BlocklessLevel]:
    """A level without a block for each of `sizes`, on the lowest grid of the ladder that holds it."""
    found = []
    for lower in as_ladder([ladder[0], *sizes], len(ladder[0]))[1:]:
        if lower in ladder:
            raise ArrnError(f"{format_grid(lower)} is a size of the ladder already: a level there has a block")
        found.append(BlocklessLevel(ladder[level_at_least(ladder, lower)], lower, kernel))
    return found


def rates_between(p: float, sizes: Sequence[Grid], base: Grid) -> tuple[float, ...]:
    """The p of every level of a ladder, so that each residual is dropped as often as without blockless levels.

    The n levels on a residual's grid, itself the last, have the nth root of p each, which spreads the samples
    over the resolutions in between. Those on the base's grid have p.

    Args:
        p: the probability of dropping a residual when all above it are dropped.
        sizes: the grids of all that can be dropped, blockless levels included.
        base: the base's grid.

    >>> rates_between(0.64, [(8,), (8,), (4,)], base=(4,))
    (0.8, 0.8, 0.64)
    """
    return tuple(p if size == base else p ** (1 / sizes.count(size)) for size in sizes)


def rates_for_shares(shares: Mapping[int, float], steps: Sequence[int]) -> tuple[float, ...]:
    """The p of every level for which dropout leaves the given share of the samples at each resolution.

    Args:
        shares: the shares of the samples, by resolution; a resolution that is not named gets no samples. Only the
            ratios matter.
        steps: the resolutions that a sample can have after dropout, highest first: that of the top grid, and for each
            level that can be dropped, blockless levels included, the resolution without this level.

    Returns:
        The p of each level. A level that no sample reaches has p = 0.

    >>> rates_for_shares({32: 0.5, 24: 0.3, 16: 0.2}, [32, 24, 16])
    (0.5, 0.4)

    Raises:
        ArrnError: for a share of a resolution that no sample has after dropout.
    """
    known = ", ".join(map(str, steps))
    if any(above <= below for above, below in pairwise(steps)):
        raise ArrnError(f"shares need a resolution for each level, but dropout leaves samples at {known} only")
    for resolution, share in shares.items():
        if resolution not in steps:
            raise ArrnError(
                f"shares has {resolution}, but dropout leaves samples at {known} only: give the network a level "
                f"without a block, blockless=[{resolution}], or leave {resolution} out"
            )
        if not 0 <= share < math.inf:
            raise ArrnError(f"the share of {resolution} must be a number of at least 0, got {share}")
    # From the lowest up, so that sums never shrink and p is at most 1.
    left = list(accumulate(shares.get(resolution, 0.0) for resolution in reversed(steps)))[::-1]
    if left[0] == 0:
        raise ArrnError(f"some resolution must have a share above 0, got {dict(shares)}")
    return tuple(below / here if here else 0.0 for here, below in pairwise(left))


Lowering: TypeAlias = Callable[
    [torch.Tensor, Sequence[nn.Module], Sequence[torch.Tensor | int | None]],
    tuple[torch.Tensor, Sequence[torch.Tensor | int | None]],
]
"""`lower_ahead` or `lower_dropped`."""


def lower_ahead(
    x: torch.Tensor, steps: Sequence[nn.Module], kept: Sequence[torch.Tensor | int | None]
) -> tuple[torch.Tensor, Sequence[torch.Tensor | int | None]]:
    """Does the blockless levels' work on the input, where that is the same.

    A sample that drops to such a level meets only smoothings and projections on its way there. With an exact kernel
    those commute with its own smoothing, which then costs next to nothing: an input has few channels and wants no
    gradient.

    Args:
        x: the input, in the order in which samples are dropped.
        steps: what dropout can drop, in descending order.
        kept: for each of them, how many samples keep it; gates and None are left as they are.

    Returns:
        The input with those samples lowered, and `kept` with nothing left to do for blockless levels.
    """
    counts = [count for count in kept if isinstance(count, int)]
    exact = any(isinstance(step, BlocklessLevel) and step.down.kernel.exact for step in steps)
    if len(counts) < len(steps) or not exact:
        return x, kept
    groups = x.tensor_split(counts)
    with as_precise_as(x):
        lowered = [
            step.lowered(group) if isinstance(step, BlocklessLevel) and group.shape[0] else group
            for step, group in zip(steps, groups[1:], strict=True)
        ]
    left = [None if isinstance(step, BlocklessLevel) else count for step, count in zip(steps, counts, strict=True)]
    return torch.cat([groups[0], *lowered]), left


def lower_dropped(
    x: torch.Tensor, steps: Sequence[nn.Module], kept: Sequence[torch.Tensor | int | None]
) -> tuple[torch.Tensor, Sequence[torch.Tensor | int | None]]:
    """Takes from each sample of an input what the levels that it loses would have seen of it.

    For what reads the signal above the level at which a sample would enter: a feature map of a level that was dropped
    must not show details that an input of that resolution does not have. With an exact kernel the levels below see no
    change.

    Args:
        x: the input, in the order in which samples are dropped.
        steps: what dropout can drop, in descending order.
        kept: for each of them a gate of shape (batch,), or how many samples, counted from the first, keep it.

    Returns:
        The lowered input, and `kept` with nothing left to do for blockless levels.
    """
    left = [None if isinstance(step, BlocklessLevel) else here for step, here in zip(steps, kept, strict=True)]
    with as_precise_as(x):
        lowered = x
        for step, here, below in zip(steps, kept, [*kept, None][1:], strict=True):
            if here is None:
                continue
            band, kernel = _left_by(step)
            if isinstance(here, torch.Tensor):  # nested: what a lower level drops too is smoothed there
                smooth = _in_the_band_of(band, x, kernel)
                lowered = torch.where(here.view(-1, *[1] * (x.ndim - 1)), lowered, smooth)
                continue
            end = x.shape[0] if below is None else min(int(below), x.shape[0])
            if here < end:
                lowered = torch.cat([lowered[:here], _in_the_band_of(band, x[here:end], kernel), lowered[end:]])
    return lowered, left


def _left_by(step: nn.Module) -> tuple[Grid, Kernel]:
    """The grid whose band is left where a level is dropped, and the kernel that smooths to it."""
    if isinstance(step, BlocklessLevel):
        return step.lower, step.down.kernel
    return cast(Any, step).next_size, cast(Any, step).kernel


def _in_the_band_of(lower: Grid, x: torch.Tensor, kernel: Kernel) -> torch.Tensor:
    """A signal on its own grid with no more than what a lower grid can hold; no axis grows on the way."""
    grid = grid_of(x)
    least = tuple(min(n, m) for n, m in zip(grid, lower, strict=True))
    return x if least == grid else resample_in_network(resample_in_network(x, least, kernel), grid, kernel)
