"""`ARRN`: the adaptive resolution residual network, a chain of Laplacian residuals; also cast to one resolution."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence

import torch
from torch import nn

from arrn.errors import ArrnError
from arrn.nn.blocks import ClassifierHead
from arrn.nn.chain import Entrance, LaplacianChain
from arrn.nn.drawing import Drawing, draw_chain, title_of
from arrn.nn.dropout import BlocklessLevel, LaplacianDropout, blockless_levels, rates_between
from arrn.nn.inference import fold_batch_norms
from arrn.nn.introspection import count_parameters
from arrn.nn.joining import join_activations
from arrn.nn.layers import Projection, Resampling, fold, way_in
from arrn.nn.network import Network, Policy, as_policy, note_option
from arrn.nn.residual import LaplacianResidual
from arrn.signal.grid import Grid, Size, as_grid, check_signal, format_grid, level_at_least, level_at_most
from arrn.signal.kernels import Kernel
from arrn.signal.resample import resample_in_network


class ARRN(LaplacianChain, Network):
    """One network for every resolution: low-resolution inputs skip the high-resolution residuals.

    ``model(x)`` takes a signal of any size, finds its level on the ladder and runs this level and
    all levels below. With a perfect kernel, in evaluation mode, the answer is the same, to rounding, as that of
    interpolating the signal to the top grid and running every level (``model(x, adapt=False)``).

    Args:
        stem: the projection A_0, from the input's channels to the first residual's features.
        residuals: the levels, highest resolution first; sizes and features must connect.
        base: the block on the last residual's `next_size`; always runs.
        head: from the base's output to the logits, such as `Head`.
        dropout: a `LaplacianDropout`, or its p: one number, the probability of dropping each residual; or one per
            residual and size in `blockless`, highest first.
        policy: the level for sizes between two grids. ``"exact"`` takes the next higher grid and
            interpolates up; ``"cheap"`` takes the next lower grid and smooths down. Inputs
            below the base are interpolated up to the base, and inputs above the top are smoothed down to the top.
        blockless: sizes between those of the ladder or below the base's, highest first, to which dropout also lowers
            samples (`BlocklessLevel`), so that the network learns such inputs. If p is one number, the sizes on
            a residual's grid share this p with the residual (`rates_between`).

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

    adapts = True

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
        between = blockless_levels(grids, blockless, residuals[0].kernel)
        if not isinstance(dropout, LaplacianDropout):
            dropout = LaplacianDropout(dropout)
        super().__init__(residuals, base, head, dropout, blockless=between)
        steps = self.droppable()
        if between and isinstance(dropout.p, float):
            self.dropout = copy.deepcopy(dropout)  # the caller's may serve networks with other levels too
            self.dropout.p = rates_between(dropout.p, [step.size for step in steps], grids[-1])
        self.dropout.rates(len(steps))
        self.stem = stem
        self.kernel: Kernel = residuals[0].kernel
        self.grids = grids
        if all(self.kernel.band(n) == 1 for n in self.grids[-1]):
            least = next(n for n in (2, 3) if self.kernel.band(n) > 1)
            raise ArrnError(
                f"a base grid of {format_grid(self.grids[-1])} holds constants only, and removes all that the "
                f"residuals contribute (they have zero mean): the ladder {self.sizes} must end at {least} or more "
                "along some axis"
            )
        self.policy = policy

    @property  # type: ignore[override]  # it always has one
    def policy(self) -> Policy:
        """The level for sizes between two grids: ``"exact"`` or ``"cheap"``."""
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._policy = as_policy(policy)
        note_option(self, "policy", self._policy)

    @property
    def in_channels(self) -> int:  # type: ignore[override]  # the stem may be replaced
        """The channels of the input."""
        return self.stem.in_features

    @property
    def num_classes(self) -> int:
        """The classes the head tells apart; 0 when it returns features."""
        return self._classifier.num_classes

    @property
    def projection_parameters(self) -> int:
        """The number of parameters of A_0 ... A_m; in a transplant, the parameters that the source did not have."""
        return sum(map(count_parameters, [self.stem, *(residual.projection for residual in self.levels)]))

    def level(self, size: Size, policy: Policy | None = None) -> int:
        """The level at which an input of `size` enters; ``sizes[level]`` is its grid."""
        return self._level(as_grid(size, self.ndim), policy)

    def _level(self, size: Grid, policy: Policy | None) -> int:
        chosen = self._policy if policy is None else as_policy(policy)
        return level_at_least(self.grids, size) if chosen == "exact" else level_at_most(self.grids, size)

    def entry_grid(self, size: Grid, policy: Policy | None = None, adapt: bool = True) -> Grid:
        """The grid of the level at which an input of `size` enters."""
        return self.grids[self.level(size, policy) if adapt else 0]

    @property
    def grids_for_all_parts(self) -> tuple[Grid, ...]:
        """The top grid: what enters there runs every level."""
        return self.grids[:1]

    def forward(self, x: torch.Tensor, adapt: bool = True, policy: Policy | None = None) -> torch.Tensor:
        """Logits of shape (batch, num_classes).

        Args:
            x: shape (batch, in_channels, *space), any resolution.
            adapt: skip the levels above the input's resolution; False runs all of them.
            policy: overrides the network's own.
        """
        return self._logits(x, *self._way_in(x, adapt, policy))

    def forward_features(self, x: torch.Tensor, adapt: bool = True, policy: Policy | None = None) -> torch.Tensor:
        """The base's output, before the head; shape (batch, features, *base grid)."""
        return self._features(x, *self._way_in(x, adapt, policy))

    def forward_levels(
        self,
        x: torch.Tensor,
        adapt: bool = True,
        policy: Policy | None = None,
        indices: Collection[int] | None = None,
    ) -> list[torch.Tensor]:
        """The last signal on each grid, highest resolution first: feature maps for tasks other than classification.

        Map n has the grid ``sizes[n]`` and the same channels for every input. For a level that runs, the map is the
        signal that the level received plus the contribution of its block on the same grid; a block that strides adds
        nothing on this grid. For a skipped level, the map is the input on this grid, through the projections A_0 ...
        A_n; with a perfect kernel this is exactly the map that the level would give if it ran. The last map is the
        output of the base; if the base strides, the map before is the input of the base.

        A sample whose levels are dropped in training gets the maps of an input of the lower resolution.

        Args:
            x: as in `forward`.
            adapt: as in `forward`.
            policy: as in `forward`.
            indices: the numbers of the wanted maps, counted from 0; None is all maps. Levels below the last wanted map
                do not run.

        Returns:
            Maps of shape (batch, features, *grid), in descending order.
        """
        level, enter = self._way_in(x, adapt, policy)
        low = tuple(map(min, x.shape[2:], self.grids[level]))  # under the cheap policy, an input loses details

        def skipped(x: torch.Tensor, n: int) -> torch.Tensor:
            weights = self._weights(n)
            plan = way_in(low, self.grids[n], self.kernel, self.in_channels, weights[-1].shape[0])
            return plan.take(resample_in_network(x, low, self.kernel), fold(weights))

        return self._maps(x, level, enter, skipped, indices)

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

    def _way_in(self, x: torch.Tensor, adapt: bool, policy: Policy | None) -> tuple[int, Entrance]:
        """The level at which `x` enters, and what takes it there."""
        size = check_signal(x, len(self.grids[0]), self.in_channels, self.stem.weight)
        level = self._level(size, policy) if adapt else 0
        weights = self._weights(level)
        plan = way_in(size, self.grids[level], self.kernel, self.in_channels, weights[-1].shape[0])
        return level, lambda x: plan.take(x, fold(weights))

    def _drawing(self) -> Drawing:
        entry = ("stem", self.grids[0], self.stem)
        return draw_chain(self, title_of(self, type(self).__name__), entry, self.grids[-1])

    def __repr__(self) -> str:
        return self._drawing().as_text()

    def _repr_html_(self) -> str:
        return self._drawing().as_table()


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


class AdaptedARRN(LaplacianChain):
    """What `ARRN.at_resolution` returns: a plain module for inputs of one size.

    This module shares its residuals, base and head with the network it came from; the chain of
    skipped projections is folded, in float64, into one new parameter. The module takes one size only, so its
    computation never depends on the shape of the input, and it compiles and exports on its own.

    Shape: (batch, in_channels, *size) -> (batch, num_classes).
    """

    def __init__(
        self,
        *,
        size: Grid,
        grid: Grid,
        kernel: Kernel,
        projection: Projection,
        residuals: Sequence[LaplacianResidual],
        base: nn.Module,
        head: nn.Module,
        dropout: LaplacianDropout,
        skipped: int,
        blockless: Sequence[BlocklessLevel] = (),
    ) -> None:
        super().__init__(residuals, base, head, dropout, skipped, blockless)
        self.size = size
        self.projection = projection
        weight = projection.weight
        self.resampling = Resampling(size, grid, kernel).to(device=weight.device, dtype=weight.dtype)
        self._project_first = way_in(size, grid, kernel, projection.in_features, projection.out_features).project_first

    def _enter(self, x: torch.Tensor) -> torch.Tensor:
        first, then = (self.projection, self.resampling) if self._project_first else (self.resampling, self.projection)
        r: torch.Tensor = then(first(x))
        return r

    def _check(self, x: torch.Tensor) -> None:
        grid = check_signal(x, len(self.size), self.projection.in_features, self.projection.weight)
        if grid != self.size:
            raise ArrnError(
                f"this network was cast to inputs of size {format_grid(self.size)}, got {format_grid(grid)}: "
                f"call at_resolution({grid}) on the whole network"
            )

    def enter(self, x: torch.Tensor) -> torch.Tensor:
        """The input on the grid and with the features of the first residual."""
        self._check(x)
        return self._enter(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._check(x)
        return self._logits(x, 0, self._enter)

    def forward_features(self, x: torch.Tensor) -> torch.Tensor:
        """The base's output, shape (batch, features, *base grid)."""
        self._check(x)
        return self._features(x, 0, self._enter)

    def fuse(self) -> AdaptedARRN:
        """A copy in evaluation mode with its batch norms folded into the convolutions before them.

        The copy shares nothing with this network; the numbers are the same to rounding. On an NVIDIA GPU, without
        gradients, convolutions also do the sums and the ReLUs behind them (`join_activations`).
        """
        return join_activations(fold_batch_norms(copy.deepcopy(self).eval()))

    def _drawing(self) -> Drawing:
        grid = self.resampling.target
        title = f"{type(self).__name__} for inputs of {format_grid(self.size)}, which enter on {format_grid(grid)}"
        base_grid = self.levels[-1].next_size if self.levels else grid
        return draw_chain(self, title, ("entry", grid, self.projection), base_grid)

    def __repr__(self) -> str:
        return self._drawing().as_text()

    def _repr_html_(self) -> str:
        return self._drawing().as_table()


class EveryLevel(nn.Module):
    """An ARRN that never skips: every input is interpolated to the top grid and runs every level.

    Adaptation is compared with this network. It shares its modules with the ARRN.

    Shape: (batch, in_channels, *space) -> (batch, num_classes).
    """

    def __init__(self, model: ARRN) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(x, adapt=False)
        return logits
