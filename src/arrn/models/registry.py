"""The registry: a name and options in, a network out; what `save` writes and `load` reads back."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import nn

from arrn.errors import ArrnError, unknown_name
from arrn.signal.kernels import Kernel, kernel_options

__all__ = ["create_model", "list_models", "model_options", "register"]

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
    if name not in _builders:
        raise unknown_name("model", name, _builders)
    return {option: p.default for option, p in inspect.signature(_builders[name]).parameters.items()}


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
    if name not in _builders:
        raise unknown_name("model", name, _builders)
    if pretrained is not None:
        from arrn.saving import create_pretrained  # which builds its network here

        return create_pretrained(name, pretrained, options)
    builder = _builders[name]
    signature = inspect.signature(builder)
    for option in options:
        if option not in signature.parameters:
            raise unknown_name(f"option of model {name!r}:", option, signature.parameters)
    model = builder(**options)
    # Defaults are written down too: a file must not change its meaning when a later version has others.
    resolved = signature.bind(**options)
    resolved.apply_defaults()
    plain = {key: _plain(value) for key, value in resolved.arguments.items()}
    model.config = {"name": name, "options": plain}  # type: ignore[assignment]  # nn.Module takes any attribute
    return model


def _plain(value: Any) -> Any:
    """An option as data that JSON can hold."""
    if isinstance(value, Kernel):
        return kernel_options(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value
