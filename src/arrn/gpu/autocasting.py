"""The dtype that torch's autocast leaves to operators of our own, and doing without it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

__all__ = ["as_precise_as", "product_dtype"]


def product_dtype(x: torch.Tensor) -> torch.dtype:
    """The dtype in which a matrix product with `x` is taken: autocast's where it is on, else x's own.

    >>> with torch.autocast("cpu", torch.bfloat16):
    ...     product_dtype(torch.zeros(1))
    torch.bfloat16
    """
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def as_precise_as(x: torch.Tensor) -> AbstractContextManager[object]:
    """Where products with `x` are taken in its own dtype, whatever autocast says."""
    device = x.device.type
    known = torch.compiler.is_compiling() or torch.amp.is_autocast_available(device)  # tracers cannot ask (2.11)
    return torch.autocast(device, enabled=False) if known else nullcontext()
