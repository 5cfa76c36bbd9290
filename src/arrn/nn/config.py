"""The options that `create_model` built a network from, kept in step with what the network becomes."""

from __future__ import annotations

from torch import nn

__all__ = ["note_option"]


def note_option(model: nn.Module, option: str, value: object) -> None:
    """Notes a changed option in ``model.config``, which `arrn.save` writes; by hand built networks have none."""
    config = getattr(model, "config", None)
    if config is not None:
        config["options"][option] = value
