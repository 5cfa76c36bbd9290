"""`LaplacianDropout`: dropping a random prefix of the highest resolutions while training."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from numbers import Real
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import nn

from arrn.errors import ArrnError, unknown_name

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

    Level n is kept by itself with probability 1 - p_n and whenever a higher level was kept (the
    paper's chain), so it is kept with probability q_n = 1 - p_1 ... p_n. With a perfect kernel,
    dropping levels is the same as lowering the resolution of the input. Evaluation mode drops nothing.

    Args:
        p: the probability of dropping, one number for every level or one per level, each in [0, 1].
        draw: ``"sample"``, one draw per sample, which gates the difference (the paper's form);
            ``"stratified"``, the batch is shuffled and level n processes the first round(B q_n)
            samples, so the dropped work is not done and batch norm sees no zeroed samples;
            ``"batch"``, one draw for the whole batch, whose dropped blocks are not run.
        unbiased: with ``"stratified"``, floor(B q_n + u) with one u ~ U(0, 1) instead of rounding:
            exact probabilities for small batches, at the price of shapes that change.

    >>> LaplacianDropout((0.5, 0.5)).survival(levels=2)
    (0.5, 0.75)
    """

    def __init__(self, p: float | Sequence[float], draw: Draw = "stratified", unbiased: bool = False) -> None:
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
        self._warned = False

    def rates(self, levels: int) -> tuple[float, ...]:
        """p for each of `levels` levels."""
        if isinstance(self.p, float):
            return (self.p,) * levels
        if len(self.p) != levels:
            raise ArrnError(f"p has {len(self.p)} values, {self.p}, but there are {levels} levels to drop")
        return self.p

    def survival(self, levels: int, first: int = 0) -> tuple[float, ...]:
        """q_n: how likely each level from `first` on is to be kept, when the input enters at `first`."""
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
            return Survivors(torch.rand(batch, device=device).argsort(), self._counts(batch, survival))
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
