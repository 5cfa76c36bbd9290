"""Which device a run is on, how it is set up, and what float32 means there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from arrn.errors import ArrnError, unknown_name

DEVICES = ("auto", "cpu", "cuda", "mps")


def pick_device(name: str = "auto") -> torch.device:
    """The device of that name; "auto" is the first available device of cuda, mps and cpu.

    Raises:
        ArrnError: for a device that is not there.
    """
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, there in available.items() if there)
    if name not in available:
        raise unknown_name("device", name, DEVICES)
    if not available[name]:
        raise ArrnError(f"there is no {name} device here; --device auto takes an available device")
    return torch.device(name)


def make_deterministic() -> None:
    """Makes torch use algorithms that give the same bits each time; slower on a GPU."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS demands it
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False


def tune_device(device: torch.device, one_shape: bool) -> None:
    """Sets a GPU up for speed; `one_shape` says whether every batch has the same shape."""
    if device.type == "cuda":
        # Trying out algorithms pays when every batch has the same shape.
        torch.backends.cudnn.benchmark = one_shape
        torch.set_float32_matmul_precision("high")


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
