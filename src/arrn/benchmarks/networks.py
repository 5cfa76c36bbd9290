"""Networks as they are timed: cast to a size, batch norms folded, in the device's memory order and dtype."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn

from arrn.models import FourierClassifier, create_model, model_options
from arrn.models.fixed import ResampledNetwork
from arrn.nn.arrn import ARRN
from arrn.nn.config import config_of
from arrn.nn.fusion import fold_batch_norms
from arrn.signal.grid import Size
from arrn.training.step import order_memory

__all__ = [
    "build_baseline",
    "class_count",
    "fold_baseline",
    "input_shape",
    "on_device",
    "random_signal",
    "to_inference",
    "without_gradients",
]

_MEMORY_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def class_count(model: nn.Module) -> int:
    """The classes that a named model was built for."""
    return int(config_of(model)["options"]["num_classes"])


def input_shape(model: nn.Module, batch: int) -> tuple[int, ...]:
    """The shape of a batch of inputs at the model's largest grid."""
    assert isinstance(model, ARRN | ResampledNetwork | FourierClassifier)
    return (batch, model.in_channels, *model.grids[0])


def random_signal(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Random numbers of that shape, channels last where there are axes enough."""
    order = _MEMORY_FORMATS.get(len(shape), torch.contiguous_format)
    return torch.randn(shape, device=device).to(dtype).contiguous(memory_format=order)


def on_device(network: nn.Module, ndim: int, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """A copy for inference; the network itself stays as it is."""
    return to_inference(copy.deepcopy(network), ndim, device, dtype)


def to_inference(network: nn.Module, ndim: int, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """The network itself, brought to the device."""
    return order_memory(network.eval().to(device=device, dtype=dtype), ndim)


def without_gradients(run: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """`run` as inference runs it."""

    def answer(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return run(x)

    return answer


def build_baseline(name: str, size: Size, num_classes: int, in_channels: int) -> nn.Module:
    """A network by name for the inputs of another."""
    wanted: dict[str, Any] = {"size": size, "num_classes": num_classes, "in_channels": in_channels}
    known = model_options(name)
    torch.manual_seed(0)
    return create_model(name, **{option: value for option, value in wanted.items() if option in known})


def fold_baseline(network: nn.Module) -> tuple[nn.Module, bool]:
    """A copy in evaluation mode with its batch norms folded, and whether it could be traced for that."""
    copied = copy.deepcopy(network).eval()
    try:
        traced = fx.symbolic_trace(copied)
    except Exception:  # a tracer runs the network's own code, which may do anything
        return copied, False
    return fold_batch_norms(traced), True
