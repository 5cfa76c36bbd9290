"""The registry: a name and options in, a network out, with both noted in its `config`, which `arrn.save` writes.

Names are registered one by one, but for those with a colon: `LIBRARY:NAME` is a network of another library, and
`package.module:function` a builder of the user's own, whose module is imported only if the user asks (`importing`).

A builder is any function of keyword arguments. Those of the library share their options by dataclasses, in which each
option has its name, its default and its description once; `takes` makes a builder of a function of such options.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeVar, cast

from torch import nn

from arrn.errors import ArrnError, first_line, unknown_name
from arrn.metadata import Metadata
from arrn.models.limits import check_options
from arrn.nn.backbone import Backbone
from arrn.nn.dropout import Draw
from arrn.nn.network import Policy, plain_option
from arrn.signal.kernels import KernelLike

Builder = Callable[..., nn.Module]

BACKBONE_OPTIONS = {"features_only", "out_indices"}
"""Options of every network by name: whether it is a `Backbone`, and the feature maps that this gives."""

_builders: dict[str, Builder] = {}
_libraries: dict[str, Callable[..., Builder]] = {}
_imported: set[str] = set()
_OWN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")

# Options that are gone, and the only value with which older files are still read.
_RETIRED = {"rejection": "mean"}


def register(name: str, builder: Builder) -> None:
    """Makes `builder` available as ``create_model(name, ...)``; its keyword arguments are the options."""
    if name in _builders:
        raise ArrnError(f"a model named {name!r} is registered already")
    _builders[name] = builder


def register_library(library: str, find: Callable[..., Builder]) -> None:
    """Makes the networks of a library available as ``create_model("LIBRARY:NAME")``.

    Args:
        library: what stands before the colon.
        find: takes such a name, and `pretrained`, to the builder; refuses names that the library does not know.
    """
    _libraries[library] = find


@contextmanager
def importing(modules: Sequence[str]) -> Iterator[None]:
    """Within it, builders named ``"package.module:function"`` can be used, if `modules` has their module.

    The modules are imported on entry; what they register under names of its own stays.

    Raises:
        ArrnError: for a module that cannot be imported.
    """
    new = import_modules(modules)
    try:
        yield
    finally:
        _imported.difference_update(new)


def import_modules(modules: Sequence[str]) -> set[str]:
    """Imports modules of the user's, whose builders can be used from then on; returns those that are new.

    Raises:
        ArrnError: for a module that cannot be imported.
    """
    if isinstance(modules, str) or not all(isinstance(name, str) for name in modules):
        raise ArrnError(f"imports takes a list of modules, such as ['package.module'], got {modules!r:.80}")
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever the user's own code raises
            raise ArrnError(f"cannot import {name!r:.80}: {type(error).__name__}: {first_line(error):.200}") from error
    new = set(modules) - _imported
    _imported.update(new)
    return new


def list_models() -> list[str]:
    """The names that `create_model` takes."""
    return sorted(_builders)


def create_model(name: str, **options: Any) -> nn.Module:
    """Builds a network by name, with fresh weights; `arrn.create_model` also takes saved ones.

    With ``features_only=True`` it is a `Backbone`, of the feature maps that `out_indices` names.

    >>> create_model("arrn", sizes=(16, 8), features=(8, 16), depth=1, num_classes=4).sizes
    (16, 8)
    """
    return build_model(name, _builder(name), options)


def pretrained_builder(name: str) -> Builder | None:
    """The builder of a library's network with the weights that the library offers; None for other names."""
    library = name.partition(":")[0]
    return _libraries[library](name, pretrained=True) if is_of_library(name) else None


def build_model(name: str, builder: Builder, options: dict[str, Any]) -> nn.Module:
    """What `create_model` does, with a builder that is not necessarily the one of that name."""
    named, takes_any = _options(builder)
    backbone = {} if takes_any else {key: options.pop(key) for key in BACKBONE_OPTIONS - named.keys() & options.keys()}
    features_only = bool(backbone.get("features_only", False))
    if backbone.get("out_indices") is not None and not features_only:
        raise ArrnError("out_indices choose feature maps of a backbone: also give features_only=True")
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
    if not isinstance(model, nn.Module):
        raise ArrnError(f"the builder {name!r} returned a {type(model).__name__}, no network (an nn.Module)")
    if "form" in config and config["form"] is None:  # what a transplant chose stays when later versions choose others
        config["form"] = getattr(model, "form", None)
    model.config = {"name": name, "options": config}  # type: ignore[assignment]  # nn.Module takes any attribute
    if not hasattr(model, "metadata"):  # a network of the user's own
        model.metadata = Metadata()  # type: ignore[assignment]
    return Backbone(model, backbone.get("out_indices")) if features_only else model


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


def is_of_library(name: str) -> bool:
    """Whether a name is one of another library's networks, known to it or not.

    >>> is_of_library("timm:regnety_002"), is_of_library("arrn_small")
    (True, False)
    """
    return name not in _builders and name.partition(":")[0] in _libraries and ":" in name


def _builder(name: str) -> Builder:
    if not isinstance(name, str):
        raise unknown_name("model", name, _builders)
    if name in _builders:
        return _builders[name]
    if is_of_library(name):
        return _library_builder(name)
    if _OWN.fullmatch(name):
        return _own_builder(name)
    hint = "; LIBRARY:NAME transplants a network of timm or torchvision" if ":" in name else ""
    raise ArrnError(f"{unknown_name('model', name, _builders)}{hint}")


@functools.lru_cache
def _library_builder(name: str) -> Builder:
    return _libraries[name.partition(":")[0]](name)


def _own_builder(name: str) -> Builder:
    """A function of a module that the user has asked for; nothing else is imported or called."""
    place, _, function = name.partition(":")
    if place not in _imported:
        raise ArrnError(
            f"the network {name!r:.200} is built by code of the module {place!r:.100}, which runs only if you ask for "
            f"it, with imports=[{place!r:.100}] or --import {place:.100} on the command line"
        )
    builder = getattr(sys.modules.get(place), function, None)
    if not callable(builder) or getattr(builder, "__module__", None) != place:
        raise ArrnError(f"the module {place!r} defines no function or class {function!r} that builds a network")
    return cast(Builder, builder)


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
