"""The dtype that torch's autocast leaves to operators of our own."""

from __future__ import annotations

import torch

__all__ = ["product_dtype"]


def product_dtype(x: torch.Tensor) -> torch.dtype:
    """The dtype in which a matrix product with `x` is taken: autocast's where it is on, else x's own.

    >>> with torch.autocast("cpu", torch.bfloat16):
    ...     product_dtype(torch.zeros(1))
    torch.bfloat16
    """
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
