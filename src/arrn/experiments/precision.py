"""What float32 means: on a GPU it may silently be TF32, with ten bits of mantissa."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["true_float32"]


@contextmanager
def true_float32() -> Iterator[None]:
    """Within it, convolutions and matrix products of float32 tensors are computed in float32.

    Training lets them be TF32, which is faster. That adapted and full evaluation agree is a statement about
    float32, so what is judged is judged here.
    """
    convolutions, products = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = convolutions
        torch.set_float32_matmul_precision(products)
