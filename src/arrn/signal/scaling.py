"""From stored numbers to those that networks see: what stands for 1, and `Normalisation`."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real

import torch
from torch import nn

from arrn.errors import ArrnError

# Samples divided by their full scale are about 1; beyond these, float32 does not hold what comes out.
_LARGEST, _SMALLEST = 1e9, 1e-9
_FULL_SCALE = {torch.uint8: 255.0, torch.int16: 32768.0}


def full_scale(dtype: torch.dtype) -> float:
    """What stands for 1: normalisation and statistics are of samples divided by it.

    >>> full_scale(torch.uint8), full_scale(torch.int16), full_scale(torch.float32)
    (255.0, 32768.0, 1.0)
    """
    if dtype.is_floating_point:
        return 1.0
    if dtype not in _FULL_SCALE:
        raise ArrnError(f"samples should be of torch.uint8, torch.int16 or floats with 1 for full scale, got {dtype}")
    return _FULL_SCALE[dtype]


def check_statistics(mean: Sequence[float], std: Sequence[float]) -> None:
    """Refuses means and standard deviations that nothing can be normalised by.

    >>> check_statistics([0.5, 0.5], [0.25, 0.0])
    Traceback (most recent call last):
    arrn.errors.ArrnError: std must be above 0 in every channel, got [0.25, 0.0]
    """
    for name, values in (("mean", mean), ("std", std)):
        if not all(isinstance(value, Real) and abs(value) <= _LARGEST for value in values):
            raise ArrnError(f"{name} must be numbers of at most {_LARGEST:g}, one per channel, got {values!r:.80}")
    if len(mean) != len(std) or not mean:
        raise ArrnError(f"mean and std must have one number per channel each, got {len(mean)} and {len(std)}")
    if min(std) < _SMALLEST:
        wrong = "above 0" if min(std) <= 0 else f"at least {_SMALLEST:g}"
        raise ArrnError(f"std must be {wrong} in every channel, got {std!r:.80}")


class Normalisation(nn.Module):
    """Stored numbers (uint8, int16) to floats of mean 0 and standard deviation 1 per channel.

    Args:
        mean, std: of the samples divided by their `full_scale`, one number per channel: images in [0, 1], sound
            in [-1, 1].

    Shape: (batch, channels, *space), unchanged.

    >>> Normalisation([0.5], [0.25])(torch.tensor([[[0, 255]]], dtype=torch.uint8))
    tensor([[[-2.,  2.]]])
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        check_statistics(mean, std)
        # Kept as x * scale + shift, for uint8: one pass over the samples.
        scale = 1 / (full_scale(torch.uint8) * torch.tensor(std, dtype=torch.float64))
        shift = -torch.tensor(mean, dtype=torch.float64) / torch.tensor(std, dtype=torch.float64)
        self.register_buffer("scale", scale.float(), persistent=False)
        self.register_buffer("shift", shift.float(), persistent=False)

    @property
    def channels(self) -> int:
        """How many the samples have."""
        return len(self.get_buffer("scale"))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        shape = (-1, *[1] * (images.ndim - 2))
        scale, shift = self.get_buffer("scale").view(shape), self.get_buffer("shift").view(shape)
        if images.dtype != torch.uint8:
            scale = scale * (full_scale(torch.uint8) / full_scale(images.dtype))
        return images * scale + shift
