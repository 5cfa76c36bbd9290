"""Whether the library's own kernels and their like are used, and where they can be."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

# ARRN_KERNELS=0 turns the fast path off: everything then runs through PyTorch's own operators.
_fast = os.environ.get("ARRN_KERNELS") != "0"
# Asked once, here: torch.compile looks through a cache and cannot trace the question.
_triton_is_here = importlib.util.find_spec("triton") is not None


@contextmanager
def fast_path() -> Iterator[None]:
    """Inside, the faster of two ways that give the same numbers is taken where it can be."""
    with _taking(True):
        yield


@contextmanager
def reference_path() -> Iterator[None]:
    """Inside, everything runs through PyTorch's own operators, layer by layer: what the fast path is compared with.

    Gradients of gradients are had here alone: on the fast path they raise an error.

    >>> with reference_path():
    ...     is_fast()
    False
    """
    with _taking(False):
        yield


@contextmanager
def _taking(fast: bool) -> Iterator[None]:
    global _fast  # a plain global: torch.compile understands it, and autograd's threads see it
    before, _fast = _fast, fast
    try:
        yield
    finally:
        _fast = before


def is_fast() -> bool:
    """Whether the fast path is taken: it is on, and nothing looks on that follows PyTorch's own operators only."""
    return _fast and (torch.compiler.is_compiling() or not _is_transformed())


def kernels_serve(x: torch.Tensor) -> bool:
    """Whether the kernels take `x`: the fast path on, an NVIDIA or AMD GPU, a type they know, Triton installed.

    What is exported keeps to PyTorch's own operators, so that it runs where this library is not.
    """
    return (
        x.is_cuda
        and x.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and _triton_is_here
        and is_fast()
        and not _is_exporting()
    )


def _is_exporting() -> bool:
    """Whether `torch.export` is tracing; `torch.compiler.is_exporting` of torch 2.11 says so of `torch.compile` too."""
    return bool(getattr(torch.compiler, "_is_exporting_flag", False))


def _is_transformed() -> bool:
    """Whether `torch.jit.trace` or a transform of `torch.func`, such as `vmap`, is at work."""
    return torch._C._get_tracing_state() is not None or torch._C._are_functorch_transforms_active()


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
