"""`Projection`: the matrix A of the paper, which acts on the channels of a signal alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from arrn.errors import ArrnError
from arrn.nn.convolution import FUNCTIONAL_CONVOLUTIONS
from arrn.signal.grid import Grid
from arrn.signal.operators import axis_order


def project(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Applies an (out, in) matrix to the channels of `x`, shaped (batch, in, *space)."""
    ndim = x.ndim - 2
    return FUNCTIONAL_CONVOLUTIONS[ndim](x, weight.reshape(*weight.shape, *[1] * ndim))


class Projection(nn.Module):
    """A linear map of channels, the same at every sample; no bias, so that a zero signal stays zero.

    Shape: (batch, in_features, *space) -> (batch, out_features, *space), any number of axes.
    """

    def __init__(self, in_features: int, out_features: int, weight: torch.Tensor | None = None) -> None:
        super().__init__()
        if in_features < 1 or out_features < 1:
            raise ArrnError(
                f"a projection needs at least 1 feature on either side, got {in_features} -> {out_features}"
            )
        self.in_features, self.out_features = in_features, out_features
        self.weight = nn.Parameter(torch.empty(out_features, in_features) if weight is None else weight)
        if weight is None:
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weights that keep the variance, so that a chain of projections does not fade."""
        nn.init.normal_(self.weight, std=self.in_features**-0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return project(x, self.weight)

    def extra_repr(self) -> str:
        return f"{self.in_features} -> {self.out_features}"


def fold(weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """The one matrix A_n ... A_0 of projections applied one after another; `weights` starts with A_0."""
    folded = weights[0]
    for weight in weights[1:]:
        folded = weight @ folded
    return folded


def projecting_first_pays(in_features: int, out_features: int, source: Grid, target: Grid) -> bool:
    """Whether A before the resampling costs fewer multiply-adds than after it; they commute."""

    def resampling(features: int) -> int:
        grid, cost = list(source), 0
        for axis in axis_order(source, target):
            if source[axis] != target[axis]:
                cost += features * math.prod(grid) * target[axis]
                grid[axis] = target[axis]
        return cost

    projecting = in_features * out_features
    first = projecting * math.prod(source) + resampling(out_features)
    last = projecting * math.prod(target) + resampling(in_features)
    return first < last
