"""The registry: a name and options in, a network out, with both noted in its `config`, which `arrn.save` writes.

A builder is any function of keyword arguments. Those of the library share their options by dataclasses, in which each
option has its name, its default and its description once; `takes` makes a builder of a function of such options.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeVar

from torch import nn

from arrn.errors import ArrnError, unknown_name
from arrn.metadata import Metadata
from arrn.models.limits import check_options
from arrn.nn.dropout import Draw
from arrn.nn.network import Policy, plain_option
from arrn.signal.kernels import KernelLike

Builder = Callable[..., nn.Module]

_builders: dict[str, Builder] = {}

# Options that are gone, and the only value with which older files are still read.
_RETIRED = {"rejection": "mean"}


def register(name: str, builder: Builder) -> None:
    """Makes `builder` available as ``create_model(name, ...)``; its keyword arguments are the options."""
    if name in _builders:
        raise ArrnError(f"a model named {name!r} is registered already")
    _builders[name] = builder


def list_models() -> list[str]:
    """The names that `create_model` takes."""
    return sorted(_builders)


def create_model(name: str, **options: Any) -> nn.Module:
    """Builds a network by name, with fresh weights; `arrn.create_model` also takes saved ones.

    >>> create_model("arrn", sizes=(16, 8), features=(8, 16), depth=1, num_classes=4).sizes
    (16, 8)
    """
    builder = _builder(name)
    named, takes_any = _options(builder)
    for option in [] if takes_any else [option for option in options if option not in named]:
        if option not in _RETIRED:
            raise unknown_name(f"option of model {name!r}:", option, named)
        if (value := options.pop(option)) != _RETIRED[option]:
            raise ArrnError(
                f"{option}={value!r} is no longer an option of model {name!r}, only {_RETIRED[option]!r} is"
            )
    if is_builtin(name):
        check_options(name, options)
    # Defaults are written down too: a file must not change its meaning when a later version has others.
    config = {option: plain_option(value) for option, value in (named | options).items()}
    model = builder(**options)
    model.config = {"name": name, "options": config}  # type: ignore[assignment]  # nn.Module takes any attribute
    if not hasattr(model, "metadata"):  # a network of the user's own
        model.metadata = Metadata()  # type: ignore[assignment]
    return model


def model_options(name: str) -> dict[str, Any]:
    """The options of a model, and their defaults.

    >>> model_options("arrn_cifar10")["dropout"]
    0.65
    """
    return _options(_builder(name))[0]


def takes_option(name: str, option: str) -> bool:
    """Whether a model can be built with an option of that name, one of its own or any."""
    named, takes_any = _options(_builder(name))
    return takes_any or option in named


def is_builtin(name: str) -> bool:
    """Whether a model is the library's own, whose options are known to mean what they say.

    >>> is_builtin("arrn_small")
    True
    """
    return str(getattr(_builder(name), "__module__", "")).startswith("arrn.")


def _builder(name: str) -> Builder:
    if name not in _builders:
        raise unknown_name("model", name, _builders)
    return _builders[name]


def _options(builder: Builder) -> tuple[dict[str, Any], bool]:
    """The arguments that a builder takes by name, with their defaults, and whether it gathers others by ``**``."""
    parameters = inspect.signature(builder).parameters.values()
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = {parameter.name: parameter.default for parameter in parameters if parameter.kind in by_name}
    return named, any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What most networks by name can be told.

    Attributes:
        num_classes: outputs; 0 returns pooled features.
        in_channels: channels of the input.
        kernel: how signals are resampled: ``"perfect"``, ``"fair"``, ``"poor"``, a kernel, or its `kernel_options`.
    """

    num_classes: int = 10
    in_channels: int = 3
    kernel: KernelLike = "perfect"


@dataclass(frozen=True, kw_only=True)
class AdaptiveOptions(Options):
    """What every ARRN by name can be told: `Options`, and how levels are dropped and chosen.

    Attributes:
        dropout: Laplacian dropout's p, the probability of dropping each residual: one number, or one per residual and
            size without a block (see `LadderOptions`), highest first.
        draw: how Laplacian dropout draws: ``"stratified"``, ``"sample"`` or ``"batch"``.
        policy: ``"exact"`` or ``"cheap"``, for sizes between two grids.
    """

    dropout: float | Sequence[float] = 0.0
    draw: Draw = "stratified"
    policy: Policy = "exact"


Given = TypeVar("Given", bound=Options)
Built = TypeVar("Built", bound=nn.Module)


def takes(defaults: Given) -> Callable[[Callable[[Given], Built]], Callable[..., Built]]:
    """Makes a function of options a builder: one of keyword arguments, the options' fields, with those defaults."""
    parameters = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=getattr(defaults, field.name))
        for field in dataclasses.fields(defaults)
    ]

    def decorate(build: Callable[[Given], Built]) -> Callable[..., Built]:
        @functools.wraps(build)
        def builder(**given: Any) -> Built:
            return build(dataclasses.replace(defaults, **given))

        builder.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what `inspect` reads
        return builder

    return decorate


def as_whole(option: str, value: object, *, least: int) -> int:
    """The value of an option, numpy's too, as a whole number of at least `least`; refuses others.

    >>> as_whole("num_classes", 10, least=0)
    10
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ArrnError(f"{option} must be a whole number of at least {least}, got {value!r}")
    return int(value)
