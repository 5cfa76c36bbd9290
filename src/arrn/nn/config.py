"""The options that `create_model` built a network from, kept in step with what the network becomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from torch import nn

from arrn.errors import ArrnError, unknown_name
from arrn.metadata import Metadata
from arrn.signal.kernels import Kernel, kernel_options

CHANGEABLE = ("num_classes", "policy")
"""The options that a network can change after it was built."""


def config_of(model: nn.Module) -> dict[str, Any]:
    """``{"name": ..., "options": {...}}`` of a network that `create_model` built.

    Where something was changed afterwards that the builder has no option for, there is a third item, ``"changed"``.
    """
    return cast(dict[str, Any], model.config)  # nn.Module takes any attribute, and types none


def note_option(model: nn.Module, option: str, value: object) -> None:
    """Notes a changed option in ``model.config``, which `arrn.save` writes; by hand built networks have none.

    The names of classes are forgotten with another number of classes.
    """
    config = getattr(model, "config", None)
    if config is not None:
        # All options of a builder are written down when it is called: others than these it does not take.
        place = config["options"] if option in config["options"] else config.setdefault("changed", {})
        place[option] = plain_option(value)
    metadata, count = getattr(model, "metadata", None), plain_option(value)
    if option == "num_classes" and isinstance(metadata, Metadata) and isinstance(count, int):
        model.metadata = metadata.for_classes(count)  # type: ignore[assignment]  # nn.Module takes any attribute


def change_option(model: nn.Module, option: str, value: Any) -> None:
    """Makes a built network what it would be with that option, one of `CHANGEABLE`, and notes it.

    Raises:
        ArrnError: for other options, and for a network that cannot change it.
    """
    if option not in CHANGEABLE:
        raise unknown_name("change of a built network:", option, CHANGEABLE)
    if not hasattr(model, "reset_classifier" if option == "num_classes" else option):
        raise ArrnError(f"the {option} of a {type(model).__name__} cannot be changed (to {value!r}) once it is built")
    if option == "num_classes":
        cast(Any, model).reset_classifier(value)
    else:
        setattr(model, option, value)
    note_option(model, option, value)  # networks of the library have done so; others may not


def classes_of(model: nn.Module) -> int | None:
    """The classes that a network tells apart (0: it returns features), by its options or by itself; None: not known."""
    config = getattr(model, "config", None) or {"options": {}}
    noted = {**config["options"], **config.get("changed", {})}.get("num_classes")
    if isinstance(noted, int):
        return noted
    try:
        own = getattr(model, "num_classes", None)
    except ArrnError:  # of an `ARRN` whose head has no classes
        return None
    # A transplanted head without a linear layer counts 0, though it may well tell classes apart.
    return own if isinstance(own, int) and own > 0 else None


def plain_option(value: Any) -> Any:
    """An option as data that JSON can hold; what cannot be such data passes unchanged, and `arrn.save` refuses it."""
    if isinstance(value, Kernel):
        try:
            return kernel_options(value)
        except (ArrnError, AttributeError):  # a kernel of the user's own, perhaps without a name
            return value
    if isinstance(value, Mapping):
        return {str(key): plain_option(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_option(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value
