"""The operations of TrivialAugmentWide on a batch, in three groups: tables of grey values, blends, maps of the plane.

Each function does one group for all samples at once, with the same kernels whatever was drawn, and leaves samples that
drew from another group as they are. Numbers are rounded where torchvision rounds them.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from arrn.data.trivial_space import Drawn

__all__ = ["blend", "change_tones", "move"]


def change_tones(images: torch.Tensor, drawn: Drawn, fixed: torch.Tensor) -> torch.Tensor:
    """Posterize, Solarize, AutoContrast, Equalize: each pixel through a table of its sample and channel.

    Args:
        images: (batch, channels, height, width), uint8.
        drawn: what to do with each sample.
        fixed: (batch, 256), the tables of the operations that do not look at the image.

    Returns:
        whole numbers as float32, of the same shape.
    """
    shown = images.flatten(2)
    batch, channels, pixels = shown.shape
    level = torch.arange(256, device=images.device)

    lowest, highest = torch.aminmax(shown, dim=2, keepdim=True)
    spread = highest - lowest
    stretched = ((level - lowest) * (255 / spread)).floor()

    # Along one axis: along several, torch's deterministic count would take numbers from the host on a GPU.
    first = torch.arange(0, batch * channels * 256, 256, device=images.device)
    place = (shown + first.view(batch, channels, 1)).flatten()
    counts = torch.zeros(batch * channels * 256, dtype=torch.int32, device=images.device)
    counts = counts.scatter_add_(0, place, counts.new_ones(()).expand_as(place)).view(batch, channels, 256)
    up_to = counts.cumsum(dim=2, dtype=torch.int32)
    below_highest = (up_to * (up_to < pixels)).amax(dim=2, keepdim=True)
    step = below_highest.div(255, rounding_mode="floor")
    rounded = up_to - counts + step.div(2, rounding_mode="floor")
    equalized = rounded.div(step.clamp(min=1), rounding_mode="floor").clamp(max=255)

    # An image of one value cannot be stretched, one of very few pixels not equalized: the fixed table keeps those.
    table = torch.where(drawn.is_one("Equalize", 3) & (step > 0), equalized, fixed.unsqueeze(1))
    table = torch.where(drawn.is_one("AutoContrast", 3) & (spread > 0), stretched, table)
    return table.flatten().gather(0, place).view(images.shape)


def blend(toned: torch.Tensor, images: torch.Tensor, drawn: Drawn) -> torch.Tensor:
    """Brightness, Color, Contrast, Sharpness: a weighted sum with black, grey, the mean grey or a blurred image.

    Args:
        toned: what `change_tones` gave: the same as `images` for samples that are blended.
        images: (batch, channels, height, width), uint8.
        drawn: what to do with each sample.

    Returns:
        float32 in 0 to 255, of the same shape; whole numbers once the rest is cut off.
    """
    values = images.float()
    grey = _grey(values)
    other = torch.where(drawn.is_one("Contrast", 4), grey.mean(dim=(1, 2, 3), keepdim=True), grey)
    other = torch.where(drawn.is_one("Sharpness", 4), _blurred(values), other)
    # Two products and a sum, not a fused one, which rounds differently.
    kept = toned * drawn.image_weight[..., None, None]
    return kept.add_(other.mul_(drawn.other_weight[..., None, None])).clamp_(0, 255)


def _grey(values: torch.Tensor) -> torch.Tensor:
    if values.shape[1] == 1:
        return values
    red, green, blue = values.unbind(dim=1)
    return (0.2989 * red + 0.587 * green + 0.114 * blue).floor_().unsqueeze(1)


def _blurred(values: torch.Tensor) -> torch.Tensor:
    """The mean of 3x3 pixels with weight 5 for the middle one, rounded; pixels at the border stay."""
    blurred = values.clone()
    if min(values.shape[2:]) > 2:
        inner = values[..., 1:-1, 1:-1]
        # Sums of whole numbers are exact, and thirteenths are never halfway: however it is computed, it is the same.
        sums = F.avg_pool2d(values, 3, stride=1, divisor_override=1).add_(inner, alpha=4)
        blurred[..., 1:-1, 1:-1] = sums.div_(13).round_()
    return blurred


def move(images: torch.Tensor, drawn: Drawn) -> torch.Tensor:
    """Shear, Translate, Rotate: each pixel shows the nearest one to where its sample's map leads, outside 0.

    Args:
        images: (batch, channels, height, width), float32.
        drawn: what to do with each sample.
    """
    height, width = images.shape[2:]
    # Made on the device: numbers from the host would have to be waited for.
    half = torch.linspace(width / 2, height / 2, 2, device=images.device)
    across = torch.linspace(height / 2, width / 2, 2, device=images.device)
    x = torch.linspace((1 - width) / 2, (width - 1) / 2, width, device=images.device).unsqueeze(1)
    y = torch.linspace((1 - height) / 2, (height - 1) / 2, height, device=images.device).view(-1, 1, 1)
    shift = drawn.shift.addcmul(drawn.corner_low, across).addcmul(drawn.corner_high, across) / half
    from_x, from_y = (drawn.linear / half)[:, :, None, None].unbind(dim=1)
    # In this order: pixels halfway between two others go where torchvision's go.
    grid = (x * from_x + y * from_y).add_(shift[:, None, None])
    return F.grid_sample(images, grid, mode="nearest", padding_mode="zeros", align_corners=False)
