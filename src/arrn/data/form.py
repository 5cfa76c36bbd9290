"""What the samples of a set are: their axes, their channels, and the numbers they are stored in."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["IMAGE", "SOUND", "Form", "full_scale", "word_for"]

_WORDS = {1: "clip", 2: "image", 3: "volume"}


@dataclass(frozen=True)
class Form:
    """What every sample of a set has in common; only their grids may differ.

    Attributes:
        ndim: axes of space: 1 (sound), 2 (images), 3 (volumes).
        channels: 3 for RGB, 1 for grey or for sound.
        dtype: of the numbers as they are stored: uint8 in 0 to 255, or int16 in -32768 to 32767.

    >>> Form(3, 1, torch.uint8).words
    'volumes'
    """

    ndim: int
    channels: int
    dtype: torch.dtype

    @property
    def words(self) -> str:
        """What several samples are called."""
        return f"{word_for(self.ndim)}s"


IMAGE = Form(2, 3, torch.uint8)
SOUND = Form(1, 1, torch.int16)


def word_for(ndim: int) -> str:
    """What a sample of `ndim` axes is called: a clip, an image or a volume."""
    return _WORDS[ndim]


def full_scale(dtype: torch.dtype) -> float:
    """What stands for 1: normalisation and statistics are of samples divided by it.

    >>> full_scale(torch.uint8), full_scale(torch.int16), full_scale(torch.float32)
    (255.0, 32768.0, 1.0)
    """
    return {torch.uint8: 255.0, torch.int16: 32768.0}.get(dtype, 1.0)
