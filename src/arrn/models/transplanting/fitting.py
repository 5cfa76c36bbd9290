"""`Transplant`: an ARRN of another network's layers, whose projections can be fitted to what these layers gave."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import torch
from torch import fx, nn

from arrn.errors import ArrnError
from arrn.nn.arrn import ARRN
from arrn.nn.difference import Form
from arrn.nn.dropout import LaplacianDropout
from arrn.nn.layers import Projection
from arrn.nn.network import Policy
from arrn.nn.residual import LaplacianResidual

Images: TypeAlias = torch.Tensor | Iterable[torch.Tensor | Sequence[Any]]
"""Inputs of a network: one tensor, or batches, each a tensor or a tuple that begins with one."""


@dataclass(frozen=True)
class Origin:
    """Where a transplant comes from, as far as its source tells.

    Attributes:
        module: of the source's class.
        architecture: its name in timm; None for other sources.
        skip_first: how many of the first residuals were discarded.
    """

    module: str
    architecture: str | None
    skip_first: int


_OFFSET = "entering_offset"
_TOGETHER = 64


class Offset(nn.Module):
    """Adds a number to each channel; zeros until `Transplant.fit_projections` finds others.

    Shape: (batch, features, *space), unchanged.
    """

    value: torch.Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("value", torch.zeros(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.value.view(-1, *[1] * (x.ndim - 2))


def add_offset(piece: fx.GraphModule, features: int) -> None:
    """Puts an `Offset`, in place, before all layers of a traced piece."""
    (signal,) = (node for node in piece.graph.nodes if node.op == "placeholder")
    weight = next((p for p in piece.parameters() if p.is_floating_point()), torch.empty(0))
    piece.add_submodule(_OFFSET, Offset(features).to(device=weight.device, dtype=weight.dtype))
    with piece.graph.inserting_after(signal):
        moved = piece.graph.call_module(_OFFSET, (signal,))
    signal.replace_all_uses_with(moved, lambda user: user is not moved)
    piece.recompile()


class Transplant(ARRN):
    """An ARRN made of the layers of another network, see `arrn.transplant`.

    In the difference form an `Offset` stands before each run of layers except the first, and before the base. It has no
    effect on the bracket of a level, since both halves receive it. It takes the place of a constant term, which
    projections cannot have, since they must return zero for zero.

    Attributes:
        form: the form of its levels, ``"paper"`` or ``"difference"``.
        origin: the network it was made from and the options, with which `arrn.load` makes it again.
    """

    origin: Origin | None = None

    def __init__(
        self,
        stem: Projection,
        residuals: Sequence[LaplacianResidual],
        base: nn.Module,
        head: nn.Module,
        dropout: LaplacianDropout,
        policy: Policy,
        form: Form,
    ) -> None:
        super().__init__(stem, residuals, base, head, dropout, policy)
        self.form = form

    @torch.no_grad()
    def fit_projections(self, images: Images, *, ridge: float = 1e-4) -> list[float]:
        """Fits the projections to the source's layers, so that the network begins near its source.

        From the top down, each A is set by least squares, so that the level returns nearly the same signal as the
        layers in its block. In the difference form this means A low = b(U low), and constants are fitted too
        (`Offset`). A_0, the base and the head do not change. Networks from `at_resolution` hold folded projections:
        call `at_resolution` after this method.

        Args:
            images: a few hundred inputs, normalised as the source wants them, of any sizes: a tensor of shape (batch,
                in_channels, *space), or batches, as a `DataLoader` gives them.
            ridge: a number that is added to the diagonal of the normal equations, relative to the mean of the diagonal.
                With fewer samples than channels, a larger number is better.

        Returns:
            For each level, the norm of the error of the fit, divided by the norm of its target.

        >>> from arrn.models import transplant
        >>> source = nn.Sequential(*(nn.Conv2d(3, 3, 2, stride=2) for _ in range(3)), nn.Flatten(), nn.Linear(12, 5))
        >>> model = transplant(source, 16, form="difference")
        >>> len(model.fit_projections(torch.rand(32, 3, 16, 16)))
        2
        """
        modes = {module: module.training for module in self.modules()}
        self.eval()
        try:
            return self._fit([self._enter_top(batch) for batch in _batches_of(images)], ridge)
        finally:
            for module, training in modes.items():
                module.training = training

    def _enter_top(self, batch: torch.Tensor) -> torch.Tensor:
        x = batch.to(self.stem.weight)
        _, enter = self._way_in(x, adapt=False, policy=None)
        return enter(x)

    def _fit(self, signals: list[torch.Tensor], ridge: float) -> list[float]:
        if not signals:
            raise ArrnError("fit_projections needs images to fit to, got none")
        below = [*(residual.block for residual in self.levels[1:]), self.base]
        left = []
        for residual, following in zip(self.levels, below, strict=True):
            lows, contributions = [], []
            fit = _Fit(residual.in_features, residual.out_features, constant=self.form == "difference")
            for r in signals:
                low = residual.down(r)
                contribution = residual(r) - residual.projection(low)
                fit.add(low, residual.block(r) - contribution)
                lows.append(low)
                contributions.append(contribution)
            weight, constant = fit.solve(ridge)
            left.append(fit.left(weight, constant))
            residual.projection.weight.copy_(weight)
            if self.form == "difference":
                cast(Offset, following.get_submodule(_OFFSET)).value.copy_(constant)
            signals = [y + residual.projection(low) for y, low in zip(contributions, lows, strict=True)]
        return left


def _batches_of(images: Images) -> Iterator[torch.Tensor]:
    for item in torch.split(images, _TOGETHER) if isinstance(images, torch.Tensor) else images:
        batch = item if isinstance(item, torch.Tensor) else item[0]
        if not isinstance(batch, torch.Tensor) or not batch.is_floating_point():
            got = batch.dtype if isinstance(batch, torch.Tensor) else type(batch).__name__
            raise ArrnError(f"images must be tensors of normalised, floating-point numbers, got {got}")
        yield batch


class _Fit:
    """The normal equations, in float64, of a linear map from the channels of one signal to those of another.

    Args:
        features, out_features: the channels.
        constant: whether a constant for each channel is fitted along, without being drawn to zero.
    """

    def __init__(self, features: int, out_features: int, constant: bool) -> None:
        self.constant = constant
        self.count = 0
        self.gram = torch.zeros(features, features, dtype=torch.float64)
        self.cross = torch.zeros(out_features, features, dtype=torch.float64)
        self.sum = torch.zeros(features, dtype=torch.float64)
        self.wanted_sum = torch.zeros(out_features, dtype=torch.float64)
        self.wanted_squares = 0.0

    def add(self, low: torch.Tensor, wanted: torch.Tensor) -> None:
        """Takes note of two signals of shape (batch, channels, *space) on one grid."""
        x, y = (signal.detach().cpu().double().movedim(1, 0).flatten(1) for signal in (low, wanted))
        self.count += x.shape[1]
        self.gram += x @ x.T
        self.cross += y @ x.T
        self.sum += x.sum(1)
        self.wanted_sum += y.sum(1)
        self.wanted_squares += float(y.square().sum())

    def solve(self, ridge: float) -> tuple[torch.Tensor, torch.Tensor]:
        """The weight, shaped (out_features, features), and the constant, shaped (out_features,)."""
        gram, cross = self.gram / self.count, self.cross / self.count
        mean, wanted = self.sum / self.count, self.wanted_sum / self.count
        if self.constant:
            gram, cross = gram - mean.outer(mean), cross - wanted.outer(mean)
        gram = gram + torch.eye(len(gram)) * (ridge * gram.diagonal().mean()).clamp_min(1e-30)
        weight = torch.linalg.solve(gram, cross.T).T
        return weight, wanted - weight @ mean if self.constant else torch.zeros_like(wanted)

    def left(self, weight: torch.Tensor, constant: torch.Tensor) -> float:
        """The norm of what the map leaves of the wanted signal, over that signal's own."""
        explained: torch.Tensor = 2 * ((weight * self.cross).sum() + constant @ self.wanted_sum)
        explained -= ((weight @ self.gram) * weight).sum() + 2 * constant @ (weight @ self.sum)
        explained -= self.count * constant.square().sum()
        return math.sqrt(max(0.0, self.wanted_squares - float(explained)) / max(self.wanted_squares, 1e-30))
