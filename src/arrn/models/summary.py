"""What a named model is and costs: grids, parameters, multiply-adds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from arrn.models.fixed import ResampledNetwork
from arrn.models.registry import create_model
from arrn.models.rivals import SwitchableNetwork
from arrn.nn.arrn import ARRN
from arrn.nn.introspection import count_parameters, multiply_adds
from arrn.nn.network import Network
from arrn.signal.grid import Grid


@dataclass(frozen=True, kw_only=True)
class ModelSummary:
    """What a named model is and costs.

    Attributes:
        name: the name that `create_model` takes.
        kind: "adaptive" (an ARRN), "fixed", "switchable" or "any size".
        grids: the sizes it runs at, highest first.
        parameters: all parameters.
        base_parameters: the parameters that the lowest resolution needs; equal to `parameters` unless adaptive.
        multiply_adds: for one input at each of `grids`.
        projection_parameters: how many of `parameters` are the projections A_0 ... A_m of an adaptive network; in
            a transplant, all parameters that its source did not have.
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
        """The parameters that a transplant took from its source: all except the projections."""
        return self.parameters - self.projection_parameters


def summarise(name: str) -> ModelSummary:
    """Builds a model with its default options, without memory for its weights, and counts.

    >>> summarise("arrn").parameters
    2154698
    """
    with torch.device("meta"):
        model = create_model(name).eval()
        if isinstance(model, ARRN):
            return _summarise_adaptive(name, model)
        assert isinstance(model, Network)
        costs = tuple(multiply_adds(model, (1, model.in_channels, *grid)) for grid in model.grids)
    count = count_parameters(model)
    fixed = "fixed" if isinstance(model, ResampledNetwork) else "any size"
    return ModelSummary(
        name=name,
        kind="switchable" if isinstance(model, SwitchableNetwork) else fixed,
        grids=model.grids,
        parameters=count,
        base_parameters=count,
        multiply_adds=costs,
    )


def _summarise_adaptive(name: str, model: ARRN) -> ModelSummary:
    lowest = model.at_resolution(model.grids[-1])

    def entering(features: int, grid: Grid) -> int:
        """Multiply-adds of the one projection from the input's channels to a grid's features."""
        return model.in_channels * features * math.prod(grid)

    # At each grid: what enters there, and all below it, of which each level is counted once.
    costs = [multiply_adds(lowest, (1, model.in_channels, *lowest.size))]
    below = costs[0] - entering(model.levels[-1].out_features, lowest.size)
    for level in reversed(model.levels):
        below += multiply_adds(level, (1, level.in_features, *level.size))
        costs.append(below + entering(level.in_features, level.size))
    return ModelSummary(
        name=name,
        kind="adaptive",
        grids=model.grids,
        parameters=count_parameters(model),
        base_parameters=count_parameters(lowest),
        multiply_adds=tuple(reversed(costs)),
        projection_parameters=model.projection_parameters,
    )
