"""What the samples of a set are: their axes, their channels, and the numbers they are stored in."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["IMAGE", "SOUND", "Form", "word_for"]

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
