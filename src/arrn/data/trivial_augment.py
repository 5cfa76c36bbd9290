"""TrivialAugmentWide on the device: one random operation per image, for a whole batch at once."""

from __future__ import annotations

import torch
from torch import nn

from arrn.data.trivial_operations import blend, change_tones, move
from arrn.data.trivial_space import (
    CHOICES,
    CHOICES_PER_OPERATION,
    Drawn,
    choice_of,
    make_kinds,
    make_numbers,
    make_tone_tables,
)
from arrn.errors import ArrnError

__all__ = ["TrivialAugmentWide"]


class TrivialAugmentWide(nn.Module):
    """One of 14 operations with one of 31 magnitudes for each image, drawn and done on the device.

    The operations, magnitudes and probabilities are those of ``torchvision.transforms.TrivialAugmentWide`` with its
    defaults (nearest pixels, black outside) on tensors, and so are the pixels; only each image draws for itself. The
    same kernels run whatever is drawn and the host waits for none, so a CUDA graph can hold them. Randomness comes
    from torch's generator of the device.

    Shape: (batch, 1 or 3 channels, height, width), uint8, unchanged.

    Example:
        >>> images = torch.randint(256, (8, 3, 32, 32), dtype=torch.uint8)
        >>> TrivialAugmentWide()(images).shape
        torch.Size([8, 3, 32, 32])
    """

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kinds", make_kinds(), persistent=False)
        self.register_buffer("numbers", make_numbers(), persistent=False)
        self.register_buffer("tone_tables", make_tone_tables(), persistent=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.apply_choices(images, self.draw(len(images)))

    def draw(self, batch: int) -> torch.Tensor:
        """A choice for each image, (batch,)."""
        return torch.randint(CHOICES, (batch,), device=self.get_buffer("numbers").device)

    def apply_choices(self, images: torch.Tensor, choices: torch.Tensor) -> torch.Tensor:
        """Does to each image what was chosen for it.

        Args:
            images: (batch, 1 or 3 channels, height, width), uint8.
            choices: (batch,), whole numbers that `choice_of` gives.

        Example:
            >>> from arrn.data.trivial_space import choice_of
            >>> images = torch.arange(4, dtype=torch.uint8).view(1, 1, 1, 4)
            >>> right = torch.tensor([choice_of("TranslateX", 1), choice_of("TranslateX", 2)])
            >>> TrivialAugmentWide().apply_choices(images.expand(2, -1, -1, -1), right).tolist()
            [[[[0, 0, 1, 2]]], [[[0, 0, 0, 1]]]]

        Raises:
            ArrnError: for what is not a batch of such images.
        """
        if images.ndim != 4 or images.shape[1] not in (1, 3) or images.dtype != torch.uint8:
            raise ArrnError(
                "TrivialAugmentWide is for images as uint8 of shape (batch, 1 or 3, height, width), "
                f"got {images.dtype} of shape {tuple(images.shape)}"
            )
        choices = _without_meaningless(choices, images)
        drawn = Drawn.of(choices, self.get_buffer("kinds"), self.get_buffer("numbers"))
        toned = change_tones(images, drawn, self.get_buffer("tone_tables").index_select(0, choices))
        # Here the rest is cut off: a nearest pixel is the same before and after.
        return move(blend(toned, images, drawn), drawn).to(torch.uint8)


def _without_meaningless(choices: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """Choices that do nothing in place of those that torchvision leaves out: colour of grey, sharpness of a line."""
    names = ["Color"] * (images.shape[1] == 1) + ["Sharpness"] * (min(images.shape[2:]) <= 2)
    for name in names:
        first = choice_of(name)
        meant = (choices >= first) & (choices < first + CHOICES_PER_OPERATION)
        choices = choices.masked_fill(meant, choice_of("Identity"))
    return choices
