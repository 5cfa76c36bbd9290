"""Which device a run is on, and how it is set up."""

from __future__ import annotations

import os

import torch

from arrn.errors import ArrnError, unknown_name

__all__ = ["DEVICES", "make_deterministic", "pick_device", "tune_device"]

DEVICES = ("auto", "cpu", "cuda", "mps")


def pick_device(name: str = "auto") -> torch.device:
    """The device of that name; "auto" is the first of cuda, mps and cpu that there is.

    Raises:
        ArrnError: for a device that is not there.
    """
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, there in available.items() if there)
    if name not in available:
        raise unknown_name("device", name, DEVICES)
    if not available[name]:
        raise ArrnError(f"there is no {name} device here; --device auto takes what there is")
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
