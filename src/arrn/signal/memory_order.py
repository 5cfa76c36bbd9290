"""Signals whose channels are innermost in memory, as matrix products and GPUs like them; any number of axes."""

from __future__ import annotations

import torch

__all__ = ["channels_first", "channels_last", "is_channels_last"]


def is_channels_last(x: torch.Tensor) -> bool:
    """Whether `x`, shaped (batch, channels, *space), is stored with its channels innermost."""
    return not x.is_contiguous() and x.movedim(1, -1).is_contiguous()


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """(batch, channels, *space) as a contiguous (batch, *space, channels); no copy if it is stored so."""
    return x.movedim(1, -1).contiguous()


def channels_first(x: torch.Tensor) -> torch.Tensor:
    """(batch, *space, channels) seen as (batch, channels, *space), in channels-last memory."""
    return x.movedim(-1, 1)
