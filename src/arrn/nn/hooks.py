"""Whether a module does more than its class says: hooks that users have put on it."""

from __future__ import annotations

from torch import nn

__all__ = ["has_hooks"]


def has_hooks(module: nn.Module) -> bool:
    """Whether anything is called when `module` is, forward or backward, beside the module itself.

    >>> layer = nn.Identity()
    >>> handle = layer.register_forward_hook(lambda module, inputs, output: output + 1)
    >>> has_hooks(layer)
    True
    """
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )
