"""TrivialAugmentWide on the device, for whole batches: each image is changed in a way of its own."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from arrn.errors import ArrnError, unknown_name

OPERATIONS = (
    "Identity",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
    "Rotate",
    "Brightness",
    "Color",
    "Contrast",
    "Sharpness",
    "Posterize",
    "Solarize",
    "AutoContrast",
    "Equalize",
)
"""Torchvision's names, in its order."""

BINS = 31
"""Magnitudes of an operation, from the mildest to the strongest."""

# An operation without a sign or a magnitude has the same row several times, so one number drawn from all
# choices has torchvision's probabilities: 1/14 for each operation, 1/31 for each bin, 1/2 for each sign.
CHOICES_PER_OPERATION = BINS * 2
CHOICES = len(OPERATIONS) * CHOICES_PER_OPERATION
"""Rows of the table: every operation with every bin and both signs."""

_BLENDS = ("Brightness", "Color", "Contrast", "Sharpness")
_LARGEST = {"ShearX": 0.99, "ShearY": 0.99, "TranslateX": 32.0, "TranslateY": 32.0, "Rotate": 135.0}
_LARGEST |= dict.fromkeys(_BLENDS, 0.99)


class TrivialAugmentWide(nn.Module):
    """One of 14 operations with one of 31 magnitudes for each image, drawn and done on the device.

    The operations, magnitudes, probabilities and pixels are those of ``torchvision.transforms.TrivialAugmentWide`` on
    tensors, with its defaults (nearest pixels, black outside). Here each image of a batch draws its own operation. The
    same kernels run for all draws, and the host does not wait for them, so a CUDA graph can record them. Random numbers
    come from torch's generator of the device.

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
            >>> from arrn.data.trivial_augment import choice_of
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


def choice_of(operation: str, magnitude_bin: int = 0, negative: bool = False) -> int:
    """The row of an operation with a magnitude and a sign.

    >>> choice_of("Identity"), choice_of("ShearX", 30, negative=True)
    (0, 123)

    Raises:
        ArrnError: for an operation or a bin that there is not.
    """
    if operation not in OPERATIONS:
        raise unknown_name("operation", operation, OPERATIONS)
    if not 0 <= magnitude_bin < BINS:
        raise ArrnError(f"a magnitude's bin is a whole number from 0 to {BINS - 1}, got {magnitude_bin}")
    return (OPERATIONS.index(operation) * BINS + magnitude_bin) * 2 + int(negative)


def magnitude_of(operation: str, magnitude_bin: int, negative: bool = False) -> float:
    """What torchvision passes to an operation, rounded to float32 as there; 0 where it has no magnitude.

    >>> magnitude_of("Rotate", 10, negative=True), magnitude_of("Posterize", 30)
    (-45.0, 2.0)
    """
    if operation == "Posterize":
        return float(8 - round(magnitude_bin / ((BINS - 1) / 6)))
    if operation == "Solarize":
        return _linear(255.0, 0.0, magnitude_bin)
    return _linear(0.0, _LARGEST.get(operation, 0.0), magnitude_bin) * (-1.0 if negative else 1.0)


def _linear(first: float, last: float, magnitude_bin: int) -> float:
    return float(torch.linspace(first, last, BINS)[magnitude_bin])


class Drawn(NamedTuple):
    """The choices for the samples of a batch.

    The map goes from a place of the result to the place in the image that it shows, both (x, y) in pixels from
    the centre: ``x * linear[0] + y * linear[1] + shift``. A shear is about the upper left corner instead, which
    adds ``corner * (height / 2, width / 2)``.

    Attributes:
        kinds: (batch, 14), true for the operation that was drawn.
        linear: (batch, 2, 2), of the map.
        shift: (batch, 2), of the map.
        corner_high, corner_low: (batch, 2), whose sum is `corner`.
        image_weight, other_weight: (batch, 1), how an image is blended with another one made from it.
    """

    kinds: torch.Tensor
    linear: torch.Tensor
    shift: torch.Tensor
    corner_high: torch.Tensor
    corner_low: torch.Tensor
    image_weight: torch.Tensor
    other_weight: torch.Tensor

    @staticmethod
    def of(choices: torch.Tensor, kinds: torch.Tensor, numbers: torch.Tensor) -> Drawn:
        """Looks choices up, (batch,), in the tables that `make_kinds` and `make_numbers` make."""
        chosen = numbers.index_select(0, choices)
        linear, *others = torch.split_with_sizes(chosen, [4, 2, 2, 2, 1, 1], dim=1)
        return Drawn(kinds.index_select(0, choices), linear.view(-1, 2, 2), *others)

    def is_one(self, operation: str, ndim: int) -> torch.Tensor:
        """Which samples have an operation, as (batch, 1, ...) with `ndim` axes."""
        return self.kinds[:, OPERATIONS.index(operation)].view(-1, *[1] * (ndim - 1))


def make_kinds() -> torch.Tensor:
    """Which operation every choice has, (choices, 14), one true in each row."""
    return torch.eye(len(OPERATIONS), dtype=torch.bool).repeat_interleave(CHOICES_PER_OPERATION, dim=0)


def make_numbers() -> torch.Tensor:
    """The numbers of every choice, (choices, 12), in the order of `Drawn`."""
    rows = [
        _numbers(operation, magnitude_of(operation, magnitude_bin, negative))
        for operation in OPERATIONS
        for magnitude_bin in range(BINS)
        for negative in (False, True)
    ]
    return torch.tensor(rows, dtype=torch.float64).float()


def _numbers(operation: str, magnitude: float) -> list[float]:
    linear, shift, corner, weights = [1.0, 0.0, 0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0]
    if operation.startswith("Shear"):
        # Torchvision goes through an angle in degrees; so do the last bits of this number.
        slope = math.tan(math.radians(math.degrees(math.atan(magnitude))))
        axis = 0 if operation == "ShearX" else 1
        linear[2 - axis] = corner[axis] = slope
    elif operation.startswith("Translate"):
        shift[0 if operation == "TranslateX" else 1] = -float(int(magnitude))
    elif operation == "Rotate":
        cosine, sine = math.cos(math.radians(magnitude)), math.sin(math.radians(magnitude))
        linear = [cosine, sine, -sine, cosine]
    elif operation in _BLENDS:
        # Brightness blends with black: no weight is as good, and needs no black image.
        weights = [1.0 + magnitude, 0.0 if operation == "Brightness" else 1.0 - (1.0 + magnitude)]
    # In two parts, the first of which times half a size has no rounding error in float32: torchvision makes this
    # product in float64, and pixels about halfway between two others would show the difference.
    high = [math.ldexp(round(math.ldexp(value, 12)), -12) for value in corner]
    low = [value - part for value, part in zip(corner, high, strict=True)]
    return [*linear, *shift, *high, *low, *weights]


def make_tone_tables() -> torch.Tensor:
    """What every choice shows instead of each grey value, (choices, 256), where that needs no look at the image."""
    level = torch.arange(256)
    tables = level.repeat(CHOICES, 1)
    for magnitude_bin in range(BINS):
        step = 2 ** (8 - int(magnitude_of("Posterize", magnitude_bin)))
        solarized = torch.where(level >= magnitude_of("Solarize", magnitude_bin), 255 - level, level)
        for negative in (False, True):
            tables[choice_of("Posterize", magnitude_bin, negative)] = level - level % step
            tables[choice_of("Solarize", magnitude_bin, negative)] = solarized
    return tables.float()


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
