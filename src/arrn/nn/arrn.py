"""`ARRN`: the adaptive resolution residual network, a chain of Laplacian residuals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import nn

from arrn.errors import ArrnError, unknown_name
from arrn.nn.adapted import AdaptedARRN
from arrn.nn.chain import BlocklessLevel, LaplacianChain, rates_between
from arrn.nn.config import note_option
from arrn.nn.dropout import LaplacianDropout
from arrn.nn.head import ClassifierHead
from arrn.nn.introspection import count_parameters
from arrn.nn.projection import Projection, fold, project, projecting_first_pays
from arrn.nn.residual import LaplacianResidual
from arrn.signal.grid import (
    Grid,
    Size,
    as_grid,
    as_ladder,
    check_signal,
    format_grid,
    format_sizes,
    grid_of,
    level_at_least,
    level_at_most,
)
from arrn.signal.kernels import Kernel
from arrn.signal.resample import resample_in_network

Policy: TypeAlias = Literal["exact", "cheap"]


class ARRN(LaplacianChain):
    """One network for every resolution: low-resolution inputs skip the high-resolution residuals.

    ``model(x)`` takes a signal of any size, picks its level on the ladder and runs only what lies from
    there down. With a perfect kernel, in evaluation mode, that is the same as interpolating the
    signal to the top grid and running everything (``model(x, adapt=False)``), to rounding.

    Args:
        stem: A_0, from the input's channels to the first residual's features.
        residuals: the levels, highest resolution first; sizes and features must connect.
        base: the block on the last residual's `next_size`; always runs.
        head: from the base's output to the logits, such as `Head`.
        dropout: a `LaplacianDropout`, or its p: one number, the probability of dropping each residual; or one per
            residual and size in `blockless`, highest first.
        policy: the level for sizes between two grids. ``"exact"`` takes the next higher grid and
            interpolates up; ``"cheap"`` takes the next lower one and smooths down. Below the base
            both interpolate up to it; above the top both smooth down to it.
        blockless: sizes between those of the ladder or under the base's, highest first, that dropout also drops to
            (`BlocklessLevel`), which teaches the network inputs of those resolutions. Where p is one number, those
            on a residual's grid share it with that residual (`rates_between`), and it becomes one p for each.

    >>> from arrn.nn import Head, InvertedBlock, LaplacianResidual, Projection, ResidualBase
    >>> model = ARRN(
    ...     stem=Projection(3, 8),
    ...     residuals=[LaplacianResidual(InvertedBlock(8), 8, 16, size=16, next_size=8)],
    ...     base=ResidualBase(InvertedBlock(16)),
    ...     head=Head(16, num_classes=10),
    ... ).eval()
    >>> model.sizes
    (16, 8)
    >>> model(torch.rand(2, 3, 11, 7)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        stem: Projection,
        residuals: Sequence[LaplacianResidual],
        base: nn.Module,
        head: nn.Module,
        dropout: LaplacianDropout | float | Sequence[float] = 0.0,
        policy: Policy = "exact",
        blockless: Sequence[Size] = (),
    ) -> None:
        if not residuals:
            raise ArrnError("an ARRN needs at least one residual: a ladder of two sizes, such as (16, 8); got none")
        _check_links(stem, residuals)
        grids = (*(residual.size for residual in residuals), residuals[-1].next_size)
        between = _between(grids, blockless, residuals[0].kernel)
        if not isinstance(dropout, LaplacianDropout):
            dropout = LaplacianDropout(dropout)
        super().__init__(residuals, base, head, dropout, blockless=between)
        steps = self.droppable()
        if between and isinstance(dropout.p, float):
            dropout.p = rates_between(dropout.p, [step.size for step in steps], grids[-1])
        self.dropout.rates(len(steps))
        self.stem = stem
        self.kernel = residuals[0].kernel
        self.grids: tuple[Grid, ...] = grids
        if all(self.kernel.band(n) == 1 for n in self.grids[-1]):
            least = next(n for n in (2, 3) if self.kernel.band(n) > 1)
            raise ArrnError(
                f"a base grid of {format_grid(self.grids[-1])} holds constants only, and removes all that the "
                f"residuals contribute (they have zero mean): the ladder {self.sizes} must end at {least} or more "
                "along some axis"
            )
        self.config: dict[str, Any] | None = None  # how create_model built it; save() needs it
        self.policy = policy

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The ladder, highest first, base last: numbers, or tuples where axes differ."""
        return format_sizes(self.grids)

    @property
    def policy(self) -> Policy:
        """The level for sizes between two grids: ``"exact"`` or ``"cheap"``."""
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._policy = as_policy(policy)
        note_option(self, "policy", self._policy)

    @property
    def ndim(self) -> int:
        """The number of axes of space."""
        return len(self.grids[0])

    @property
    def in_channels(self) -> int:
        """The channels of the input."""
        return self.stem.in_features

    @property
    def num_classes(self) -> int:
        """The classes the head tells apart; 0 when it returns features."""
        return self._classifier.num_classes

    @property
    def projection_parameters(self) -> int:
        """The parameters of A_0 ... A_m; in a transplant, those that its source did not have."""
        return sum(map(count_parameters, [self.stem, *(residual.projection for residual in self.levels)]))

    def level(self, size: Size, policy: Policy | None = None) -> int:
        """The level at which an input of `size` enters; ``sizes[level]`` is its grid."""
        grid = as_grid(size, self.ndim)
        chosen = self.policy if policy is None else as_policy(policy)
        return level_at_least(self.grids, grid) if chosen == "exact" else level_at_most(self.grids, grid)

    def forward(self, x: torch.Tensor, adapt: bool = True, policy: Policy | None = None) -> torch.Tensor:
        """Logits of shape (batch, num_classes).

        Args:
            x: shape (batch, in_channels, *space), any resolution.
            adapt: skip the levels above the input's resolution; False runs all of them.
            policy: overrides the network's own.
        """
        return self._logits(x, self._entry_level(x, adapt, policy))

    def forward_features(self, x: torch.Tensor, adapt: bool = True, policy: Policy | None = None) -> torch.Tensor:
        """The base's output, before the head; shape (batch, features, *base grid)."""
        return self._features(x, self._entry_level(x, adapt, policy))

    def forward_levels(self, x: torch.Tensor, adapt: bool = True, policy: Policy | None = None) -> list[torch.Tensor]:
        """Features of every level that ran, for other tasks: what each residual received, highest
        resolution first, what the base received, and last what the base gave."""
        return self._level_features(x, self._entry_level(x, adapt, policy))

    def at_resolution(self, size: Size, policy: Policy | None = None) -> AdaptedARRN:
        """The network cast to inputs of `size`: a plain module with only the levels it needs.

        Modules are shared with this network; the skipped projections become one new parameter.
        """
        grid = as_grid(size, self.ndim)
        level = self.level(grid, policy)
        weight = self.stem.weight
        with torch.no_grad():
            # On the CPU, since not every device has float64 (the meta device has no numbers to fetch).
            place = weight.device if weight.is_meta else torch.device("cpu")
            exact = [w.to(place).double() for w in self._weights(level)]
            folded = fold(exact).to(weight.dtype).to(weight.device)
        projection = Projection(self.in_channels, folded.shape[0], folded)
        projection.requires_grad_(any(w.requires_grad for w in self._weights(level)))
        kept = self.droppable(level)
        adapted = AdaptedARRN(
            size=grid,
            grid=self.grids[level],
            kernel=self.kernel,
            projection=projection,
            residuals=self.levels[level:],
            base=self.base,
            head=self.head,
            dropout=self.dropout,
            skipped=len(self.droppable()) - len(kept),
            blockless=[step for step in kept if isinstance(step, BlocklessLevel)],
        )
        adapted.training = self.training  # not adapted.train(): that would reach into the shared modules
        return adapted

    def reset_classifier(self, num_classes: int) -> None:
        """A new classifier for `num_classes` classes; with 0 the network returns pooled features."""
        self._classifier.reset_classifier(num_classes)
        self._classifier.to(device=self.stem.weight.device, dtype=self.stem.weight.dtype)
        note_option(self, "num_classes", num_classes)

    @property
    def _classifier(self) -> ClassifierHead:
        if not isinstance(self.head, ClassifierHead):
            raise ArrnError(
                f"this network's head is a {type(self.head).__name__}, which has no classes to count or reset"
            )
        return self.head

    def _weights(self, level: int) -> list[torch.Tensor]:
        """The matrices A_0 ... A_{n-1} that a signal passes when it enters at `level`."""
        return [self.stem.weight, *(residual.projection.weight for residual in self.levels[:level])]

    def _entry_level(self, x: torch.Tensor, adapt: bool, policy: Policy | None) -> int:
        grid = check_signal(x, self.ndim, self.in_channels, self.stem.weight)
        return self.level(grid, policy) if adapt else 0

    def _enter(self, x: torch.Tensor, level: int) -> torch.Tensor:
        weight, grid = fold(self._weights(level)), self.grids[level]
        if projecting_first_pays(self.in_channels, weight.shape[0], grid_of(x), grid):
            return resample_in_network(project(x, weight), grid, self.kernel)
        return project(resample_in_network(x, grid, self.kernel), weight)

    def __repr__(self) -> str:
        """The network as the paper draws it, one line a level."""
        last = self.levels[-1].out_features
        gives = self.head.features if isinstance(self.head, ClassifierHead) else last
        classes = f" -> {self.head.num_classes}" if isinstance(self.head, ClassifierHead) else ""
        through = f"{last}" if gives == last else f"{last} -> {gives}"
        droppable = self.droppable()
        dropped = dict.fromkeys(self.grids, 1.0)
        for step, p in zip(droppable, self.dropout.rates(len(droppable)), strict=True):
            dropped[step.size] *= p
        rows: list[tuple[list[str], nn.Module]] = [
            (["stem", format_grid(self.grids[0]), f"{self.in_channels} -> {self.stem.out_features}", ""], self.stem),
            *(
                (
                    [
                        "residual",
                        f"{format_grid(residual.size)} -> {format_grid(residual.next_size)}",
                        f"{residual.in_features} -> {residual.out_features}",
                        f"{type(residual.block).__name__}, p={dropped[residual.size]:.3g}",
                    ],
                    residual,
                )
                for residual in self.levels
            ),
            (["base", format_grid(self.grids[-1]), through, type(self.base).__name__], self.base),
            (["head", "", f"{gives}{classes}", type(self.head).__name__], self.head),
        ]
        widths = [max(map(len, column)) for column in zip(*(texts for texts, _ in rows), strict=True)]
        lines = [
            f"ARRN {' -> '.join(map(format_grid, self.grids))}, {self.kernel.name}/{self.kernel.boundary}, "
            f"policy {self.policy}, {self.dropout.draw} draw"
            + "".join(
                f", drops to {format_grid(level.lower)}" for level in droppable if isinstance(level, BlocklessLevel)
            )
        ]
        for texts, module in [*rows, (["total", "", "", ""], self)]:
            cells = "  ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True))
            lines.append(f"  {cells}  {count_parameters(module):>12,} parameters")
        return "\n".join(lines)


def as_policy(policy: str) -> Policy:
    """The policy of that name; refuses others."""
    if policy == "exact":
        return "exact"
    if policy == "cheap":
        return "cheap"
    raise unknown_name("policy", policy, ("exact", "cheap"))


def _between(grids: Sequence[Grid], sizes: Sequence[Size], kernel: Kernel) -> list[BlocklessLevel]:
    """The levels without a block, each on the lowest grid of the ladder that holds it."""
    ndim = len(grids[0])
    found = []
    for lower in as_ladder([grids[0], *sizes], ndim)[1:]:
        if lower in grids:
            raise ArrnError(f"{format_grid(lower)} is a size of the ladder already: a level there has a block")
        found.append(BlocklessLevel(grids[level_at_least(grids, lower)], lower, kernel))
    return found


def _check_links(stem: Projection, residuals: Sequence[LaplacianResidual]) -> None:
    """Refuses parts that are no levels, and levels whose features, sizes or kernels do not connect."""
    if not isinstance(stem, Projection):
        raise ArrnError(f"the stem must be a Projection, such as Projection(3, 64), got a {type(stem).__name__}")
    for n, residual in enumerate(residuals):
        if not isinstance(residual, LaplacianResidual):
            raise ArrnError(f"residual {n} is a {type(residual).__name__}: wrap it, LaplacianResidual(block, ...)")
    features = stem.out_features
    for n, residual in enumerate(residuals):
        if residual.in_features != features:
            raise ArrnError(f"residual {n} takes {residual.in_features} features, but {features} reach it")
        features = residual.out_features
        if residual.kernel != residuals[0].kernel:
            raise ArrnError(
                f"all residuals must share one kernel: residual {n} has {residual.kernel}, "
                f"residual 0 has {residuals[0].kernel}"
            )
        if n and residual.size != residuals[n - 1].next_size:
            raise ArrnError(
                f"residual {n} works on {format_grid(residual.size)}, but residual {n - 1} ends on "
                f"{format_grid(residuals[n - 1].next_size)}"
            )


class EveryLevel(nn.Module):
    """An ARRN that never skips: every input is interpolated to the top grid and runs every level.

    What adaptation is compared with. Shares its modules with the network.

    Shape: (batch, in_channels, *space) -> (batch, num_classes).
    """

    def __init__(self, model: ARRN) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(x, adapt=False)
        return logits
