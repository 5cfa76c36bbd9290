"""What TrivialAugmentWide can draw: torchvision's operations and magnitudes, as rows of a table."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from arrn.errors import ArrnError, unknown_name

__all__ = [
    "BINS",
    "CHOICES",
    "CHOICES_PER_OPERATION",
    "OPERATIONS",
    "Drawn",
    "choice_of",
    "magnitude_of",
    "make_kinds",
    "make_numbers",
    "make_tone_tables",
]

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
