"""The registry: a name and options in, a network out; what `save` writes and `load` reads back."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from arrn.errors import ArrnError, unknown_name
from arrn.models.fixed import ResampledNetwork
from arrn.models.rivals import FourierClassifier, SwitchableNetwork
from arrn.nn.adapted import AdaptedARRN
from arrn.nn.arrn import ARRN
from arrn.nn.config import plain_option
from arrn.nn.introspection import count_parameters, multiply_adds
from arrn.signal.grid import Grid

Builder = Callable[..., nn.Module]

_builders: dict[str, Builder] = {}


def register(name: str, builder: Builder) -> None:
    """Makes `builder` available as ``create_model(name, ...)``; its keyword arguments are the options."""
    if name in _builders:
        raise ArrnError(f"a model named {name!r} is registered already")
    _builders[name] = builder


def list_models() -> list[str]:
    """The names that `create_model` takes."""
    return sorted(_builders)


def model_options(name: str) -> dict[str, Any]:
    """The options of a model, and their defaults.

    >>> model_options("arrn_cifar10")["dropout"]
    0.65
    """
    return {option: p.default for option, p in _named_options(inspect.signature(_builder(name))).items()}


def takes_option(name: str, option: str) -> bool:
    """Whether a model can be built with an option of that name, one of its own or any."""
    return option in model_options(name) or _takes_any(inspect.signature(_builder(name)))


def create_model(name: str, pretrained: str | os.PathLike[str] | None = None, **options: Any) -> nn.Module:
    """Builds a network by name.

    The generic builder ``"arrn"`` makes any ladder; see `arrn.models.build_arrn` for its options.

    Args:
        name: one of `list_models`.
        pretrained: a folder that `arrn.save` wrote for a network of that name: options that are not given are the
            saved ones, and so are the weights, in float32. With another `num_classes` the classifier starts afresh.
        options: of the model.

    >>> model = create_model("arrn", sizes=(16, 8), features=(8, 16), depth=1, num_classes=4)
    >>> model.sizes
    (16, 8)
    """
    if pretrained is None:
        return build_model(name, options)
    _builder(name)  # a name that is not known is the first thing to say
    if not isinstance(pretrained, str | os.PathLike):
        raise ArrnError(f"pretrained takes the folder that arrn.save wrote, got {pretrained!r}")
    from arrn.saving import create_pretrained  # which builds its network here

    return create_pretrained(name, pretrained, options)


def build_model(name: str, options: Mapping[str, Any]) -> nn.Module:
    """`create_model` for a builder's options as data, whatever they are called (`pretrained`, say)."""
    builder = _builder(name)
    signature = inspect.signature(builder)
    named = _named_options(signature)
    for option in options:
        if option not in named and not _takes_any(signature):
            raise unknown_name(f"option of model {name!r}:", option, named)
    # Defaults are written down too: a file must not change its meaning when a later version has others.
    resolved = {option: parameter.default for option, parameter in named.items()} | dict(options)
    plain = {option: plain_option(value) for option, value in resolved.items()}
    model = builder(**options)
    model.config = {"name": name, "options": plain}  # type: ignore[assignment]  # nn.Module takes any attribute
    return model


def _builder(name: str) -> Builder:
    if name not in _builders:
        raise unknown_name("model", name, _builders)
    return _builders[name]


def _named_options(signature: inspect.Signature) -> dict[str, inspect.Parameter]:
    """The parameters that can be given by name, but for those that a ``**`` gathers."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: parameter for name, parameter in signature.parameters.items() if parameter.kind in kinds}


def _takes_any(signature: inspect.Signature) -> bool:
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in signature.parameters.values())


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
