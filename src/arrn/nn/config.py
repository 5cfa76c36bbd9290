"""The options that `create_model` built a network from, kept in step with what the network becomes."""

from __future__ import annotations

from typing import Any, cast

from torch import nn

__all__ = ["config_of", "note_option"]


def config_of(model: nn.Module) -> dict[str, Any]:
    """``{"name": ..., "options": {...}}`` of a network that `create_model` built."""
    return cast(dict[str, Any], model.config)  # nn.Module takes any attribute, and types none


def note_option(model: nn.Module, option: str, value: object) -> None:
    """Notes a changed option in ``model.config``, which `arrn.save` writes; by hand built networks have none."""
    config = getattr(model, "config", None)
    if config is not None:
        config["options"][option] = value
