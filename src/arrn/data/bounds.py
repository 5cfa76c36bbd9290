"""Bounds on what a file may claim, each far above any honest set, checked before anything is allocated for it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from arrn.errors import ArrnError
from arrn.signal.grid import Grid

MOST_SAMPLES = 2**25
"""Samples of a split; ImageNet-21k has 14 million."""

MOST_CLASSES = 2**16
"""Classes of a set; ImageNet-21k has 21,841."""

MOST_PIXELS = 64_000_000
"""Pixels of an image, or voxels of a volume, unless a caller takes more: 8000x8000, or 400x400x400."""

LONGEST_SIDE = 2**16 - 1
"""Pixels along a side, which is what JPEG can hold: of longer ones a matrix that resamples them gets too large."""

HIGHEST_RATE = 1_000_000
"""Samples a second of sound; the fastest sound cards take 768,000."""

MOST_CHANNELS = 256
"""Channels of a wav file."""

MOST_SOUND = 2**25
"""Numbers, samples times channels, that are read of one clip: six minutes of stereo at 44,100 a second."""

# What decompresses to more than the first is refused where it is also more than so many times what is stored. Masks
# of volumes, the emptiest of honest data, compress by about a hundred; a file of zeros by a thousand and more.
_UNPACKED_FREELY = 2**30
_MOST_UNPACKED = 200


def check_unpacked(claimed: int, stored: int, what: str) -> None:
    """Refuses what would fill the memory when it is decompressed: 1 GiB and 200 times its size in the file.

    Args:
        claimed: bytes that it says to hold.
        stored: bytes that it takes in the file.
        what: names it in the error.

    >>> check_unpacked(10**12, 10**6, "x.npz: train_images")
    Traceback (most recent call last):
        ...
    arrn.errors.ArrnError: x.npz: train_images holds 1,000,000,000,000 bytes in 1,000,000 of the file, as no images do
    """
    if claimed > max(_UNPACKED_FREELY, _MOST_UNPACKED * stored):
        raise ArrnError(f"{what} holds {claimed:,} bytes in {stored:,} of the file, as no images do")


def check_pixels(size: Grid, most: int | None = None) -> str | None:
    """What is wrong with the size of an image or a volume; None where nothing is.

    Args:
        size: its grid.
        most: pixels, or voxels, that are taken; None is `MOST_PIXELS`.

    >>> check_pixels((9400, 9400))
    'its size, 9400x9400, is 88,360,000 pixels, more than the 64,000,000 that are read'
    """
    most = MOST_PIXELS if most is None else most
    shape = "x".join(map(str, size))
    if min(size) < 1:
        return f"its size, {shape}, cannot be meant"
    if math.prod(size) > most:
        words = "pixels" if len(size) == 2 else "voxels"
        return f"its size, {shape}, is {math.prod(size):,} {words}, more than the {most:,} that are read"
    if max(size) > LONGEST_SIDE:
        return f"its size, {shape}, has a side of more than {LONGEST_SIDE:,}"
    return None


def check_samples(count: int, where: object) -> None:
    """Refuses more samples than any honest split has."""
    if count > MOST_SAMPLES:
        raise ArrnError(f"{where}: a split has at most {MOST_SAMPLES:,} samples, got {count:,}")


def check_class_names(names: Sequence[str], where: object) -> None:
    """Refuses more classes than any honest set has."""
    if len(names) > MOST_CLASSES:
        raise ArrnError(f"{where}: a set has at most {MOST_CLASSES:,} classes, got {len(names):,}")


def numbered_classes(labels: torch.Tensor, where: object) -> tuple[str, ...]:
    """The names "0" to the largest label, for labels that nobody named.

    Args:
        labels: int64 of shape (samples,), at least one.
        where: the file, for the error.

    Raises:
        ArrnError: for a label that cannot be meant: there would be a class without a sample, or too many of them.

    >>> numbered_classes(torch.tensor([0, 2, 1]), "a.npz")
    ('0', '1', '2')
    """
    place = int(labels.argmax())
    largest, most = int(labels[place]), min(len(labels), MOST_CLASSES)
    if not 0 <= largest < most:
        raise ArrnError(
            f"{where}: label {largest} of sample {place} cannot be meant: {len(labels)} samples are of at most "
            f"{most} classes, numbered from 0"
        )
    return tuple(map(str, range(largest + 1)))
