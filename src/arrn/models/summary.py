"""A model in one line: its kind, ladder, parameters and multiply-adds, found without computing anything."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from arrn.models.fixed import ResampledNetwork
from arrn.models.fourier import FourierClassifier
from arrn.models.registry import create_model
from arrn.models.rivals import SwitchableNetwork
from arrn.nn.adapted import AdaptedARRN
from arrn.nn.arrn import ARRN
from arrn.nn.cost import count_parameters, multiply_adds
from arrn.signal.grid import Grid

__all__ = ["ModelSummary", "summarise"]


@dataclass(frozen=True)
class ModelSummary:
    """What a named model is and costs.

    Attributes:
        name: the name that `create_model` takes.
        kind: "adaptive" (an ARRN), "fixed", "switchable" or "any size".
        grids: the sizes it runs at, highest first.
        parameters: in all.
        base_parameters: what the lowest resolution needs; the same as `parameters` unless adaptive.
        multiply_adds: for one input at each of `grids`.
        projection_parameters: how many of `parameters` are the projections A_0 ... A_m of an adaptive network; in
            a transplant, all that its source did not have.
    """

    name: str
    kind: str
    grids: tuple[Grid, ...]
    parameters: int
    base_parameters: int
    multiply_adds: tuple[int, ...]
    projection_parameters: int = 0

    @property
    def source_parameters(self) -> int:
        """What a transplant took from its source: everything but the projections."""
        return self.parameters - self.projection_parameters


def summarise(name: str) -> ModelSummary:
    """Builds a model with its default options, without memory for its weights, and counts.

    >>> summarise("arrn").parameters
    2154698
    """
    with torch.device("meta"):
        model = create_model(name).eval()
        if isinstance(model, ARRN):
            lowest = model.at_resolution(model.grids[-1])
            return ModelSummary(
                name,
                "adaptive",
                model.grids,
                count_parameters(model),
                count_parameters(lowest),
                _costs(model, lowest),
                model.projection_parameters,
            )
        assert isinstance(model, ResampledNetwork | FourierClassifier)
        costs = [multiply_adds(model, (1, model.in_channels, *grid)) for grid in model.grids]
    count = count_parameters(model)
    return ModelSummary(name, _kind(model), model.grids, count, count, tuple(costs))


def _costs(model: ARRN, lowest: AdaptedARRN) -> tuple[int, ...]:
    """Multiply-adds at each grid, highest first: what enters there, and all below it, of which each is counted once."""
    costs = [multiply_adds(lowest, (1, model.in_channels, *lowest.size))]
    below = costs[0] - _entering(model, model.levels[-1].out_features, lowest.size)
    for level in reversed(model.levels):
        below += multiply_adds(level, (1, level.in_features, *level.size))
        costs.append(below + _entering(model, level.in_features, level.size))
    return tuple(reversed(costs))


def _entering(model: ARRN, features: int, grid: Grid) -> int:
    """Those of the one projection from the input's channels to a grid's features."""
    return model.in_channels * features * math.prod(grid)


def _kind(model: nn.Module) -> str:
    if isinstance(model, SwitchableNetwork):
        return "switchable"
    return "fixed" if isinstance(model, ResampledNetwork) else "any size"
