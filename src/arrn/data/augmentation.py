"""From stored samples to what the network sees: normalisation, random changes, on the device, per sample."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from arrn.data.trivial_augment import TrivialAugmentWide
from arrn.signal.scaling import Normalisation


class Augmentation(nn.Module):
    """Normalisation, a horizontal flip for half of the samples, a crop from the zero-padded image, a cut-out square.

    The order is the paper's. Zeros are padded after normalisation, so they are the mean colour. The padding is a share
    of the size, the same share on every grid: 1/8 is the paper's 4 pixels at 32x32. `TrivialAugmentWide` comes before
    normalisation, since its operations are for uint8. The cut-out square (for sound an interval, for volumes a cube)
    comes last. Its centre may lie anywhere in the sample, so a part of the square may lie outside.

    For sound the crop is a random shift. Runs do not flip sound, since a flip plays it backwards. The random numbers
    come from torch's generator of the device.

    Args:
        normalisation: turns stored numbers into normalised floats.
        flip: whether to mirror half of the samples along the last axis.
        padding: the padding along each edge as a share of the size; 0 does not crop.
        trivial_augment: whether to apply `TrivialAugmentWide` first; only for grey and colour images.
        cutout: the side of a square that is set to the mean value, as a share of the size; 0 cuts out nothing.

    Shape: (batch, channels, *space), unchanged. Images are in channels-last memory order.
    """

    def __init__(
        self,
        normalisation: Normalisation,
        flip: bool = True,
        padding: float = 1 / 8,
        trivial_augment: bool = False,
        cutout: float = 0.0,
    ) -> None:
        super().__init__()
        self.normalisation = normalisation
        self.flip = flip
        self.padding = padding
        self.cutout = cutout
        self.trivial_augment = TrivialAugmentWide() if trivial_augment else None

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.trivial_augment is not None:
            images = self.trivial_augment(images)
        batch, ndim, device = images.shape[0], images.ndim - 2, images.device
        index: list[torch.Tensor] = [torch.arange(batch, device=device).view(-1, *[1] * ndim)]
        inside = torch.ones((), dtype=torch.bool, device=device)
        for axis, length in enumerate(images.shape[2:]):
            margin = round(length * self.padding)
            offset = torch.randint(-margin, margin + 1, (batch, 1), device=device)
            # For each sample, the place in the image that each place of the crop shows.
            places = torch.arange(length, device=device) + offset
            if self.flip and axis == ndim - 1:
                mirrored = torch.rand(batch, 1, device=device) < 0.5
                places = torch.where(mirrored, length - 1 - places, places)
            shape = [batch, *(length if other == axis else 1 for other in range(ndim))]
            inside = inside & ((places >= 0) & (places < length)).view(shape)
            index.append(places.clamp(0, length - 1).view(shape))
        if self.cutout:
            inside = inside & ~self._cut_out(images)
        # Indexed by tensors on both sides, the channels move last: memory in channels-last order for free.
        everywhere: tuple[Any, ...] = (index[0], slice(None), *index[1:])
        shown = images[everywhere].movedim(-1, 1)
        cropped: torch.Tensor = self.normalisation(shown) * inside.unsqueeze(1)
        return cropped

    def _cut_out(self, images: torch.Tensor) -> torch.Tensor:
        """Which places of each sample are cut out, of shape (batch, *space)."""
        (batch, _, *space), device = images.shape, images.device
        square = torch.ones((), dtype=torch.bool, device=device)
        for axis, length in enumerate(space):
            side = round(length * self.cutout)
            first = torch.randint(length, (batch, 1), device=device) - side // 2
            places = torch.arange(length, device=device)
            along = (places >= first) & (places < first + side)
            square = square & along.view(batch, *(length if other == axis else 1 for other in range(len(space))))
        return square


def cut_and_mix(
    images: torch.Tensor, targets: torch.Tensor, chance: float, first: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """CutMix (Yun et al., ICCV 2019): a box of a sample comes from the next of its batch, and so much of its target.

    The box covers a part of the sample that is uniform in [0, 1], but for what of it lies outside.

    Args:
        images: shape (batch, channels, *space).
        targets: the probability of each class, shape (batch, classes).
        chance: how likely each sample is to be mixed.
        first: how many samples, counted from the first, may be mixed; the others stay whole.

    Returns:
        Images and targets of the same shapes.
    """
    (batch, _, *space), device = images.shape, images.device
    ndim = len(space)
    mixed = (torch.rand(batch, device=device) < chance) & (torch.arange(batch, device=device) < first)
    side = torch.rand(batch, device=device).pow(1 / ndim) * mixed
    box = torch.ones((), dtype=torch.bool, device=device)
    for axis, length in enumerate(space):
        centre = torch.rand(batch, 1, device=device) * length
        distance = (torch.arange(length, device=device) + 0.5 - centre).abs()
        along = distance < side.unsqueeze(1) * length / 2
        box = box & along.view(batch, *(length if other == axis else 1 for other in range(ndim)))
    kept = 1 - box.flatten(1).to(targets.dtype).mean(dim=1, keepdim=True)
    pasted = torch.where(box.unsqueeze(1), images.roll(1, 0), images)
    return pasted, kept * targets + (1 - kept) * targets.roll(1, 0)
