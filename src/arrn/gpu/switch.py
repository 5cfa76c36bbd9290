"""Whether the library's own kernels are used, and where they can be."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch

__all__ = ["kernels_serve", "reference_path"]

_enabled: ContextVar[bool] = ContextVar("arrn_kernels_enabled", default=True)


@contextmanager
def reference_path() -> Iterator[None]:
    """Inside, everything runs through PyTorch's own operators: what the kernels are compared with.

    >>> with reference_path():
    ...     kernels_serve(torch.zeros(1, 4, 8, 8))
    False
    """
    token = _enabled.set(False)
    try:
        yield
    finally:
        _enabled.reset(token)


def kernels_serve(x: torch.Tensor) -> bool:
    """Whether the kernels can take `x`: on an NVIDIA or AMD GPU, in a type they know, with Triton installed.

    What is exported keeps to PyTorch's own operators, so that it runs where this library is not.
    """
    return (
        x.is_cuda
        and x.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and _enabled.get()
        and _triton_is_here()
        and not torch.compiler.is_exporting()
    )


@cache
def _triton_is_here() -> bool:
    return importlib.util.find_spec("triton") is not None
