"""Bounds on what a file may claim, each far above any honest set, checked before anything is allocated for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from arrn.errors import ArrnError
from arrn.runtime.files import Array

MOST_SAMPLES = 2**25
"""Samples of a split; ImageNet-21k has 14 million."""

MOST_CLASSES = 2**16
"""Classes of a set; ImageNet-21k has 21,841."""

# What decompresses to more than the first is refused where it is also more than so many times what is stored. Masks
# of volumes, the emptiest of honest data, compress by about a hundred; a file of zeros by a thousand and more.
_UNPACKED_FREELY = 2**30
_MOST_UNPACKED = 200


def check_unpacked(claimed: int, stored: int, what: str) -> None:
    """Refuses compressed data that would fill the memory: above 1 GiB, and above 200 times its size in the file.

    Args:
        claimed: the bytes that the data takes after unpacking, by its header.
        stored: the bytes that the data takes in the file.
        what: the name of the data in the error.

    >>> check_unpacked(10**11, 10**5, "x.npz")
    Traceback (most recent call last):
        ...
    arrn.errors.ArrnError: x.npz unpacks from 100,000 to 100,000,000,000 bytes: more than 1 GiB and 200 times its size
    """
    if claimed > max(_UNPACKED_FREELY, _MOST_UNPACKED * stored):
        raise ArrnError(
            f"{what} unpacks from {stored:,} to {claimed:,} bytes: more than 1 GiB and {_MOST_UNPACKED} times its size"
        )


def check_samples(count: int, where: object) -> None:
    """Refuses more samples than any honest split has."""
    if count > MOST_SAMPLES:
        raise ArrnError(f"{where}: a split has at most {MOST_SAMPLES:,} samples, got {count:,}")


def check_class_names(names: Sequence[object], where: object) -> None:
    """Refuses more classes than any honest set has."""
    if len(names) > MOST_CLASSES:
        raise ArrnError(f"{where}: a set has at most {MOST_CLASSES:,} classes, got {len(names):,}")


def as_labels(numbers: Array, where: object) -> torch.Tensor:
    """Whole numbers of any dtype as labels, int64. Those that int64 cannot hold are refused with their value.

    >>> as_labels(np.array([3, 2**63 + 5], np.uint64), "a.npz")
    Traceback (most recent call last):
        ...
    arrn.errors.ArrnError: a.npz: label 9223372036854775813 of sample 1 is out of range: classes are numbered 0 to 65535
    """
    if numbers.dtype.kind == "u" and len(numbers) and int(numbers.max()) >= 2**63:
        place = int(numbers.argmax())
        raise ArrnError(
            f"{where}: label {numbers[place]} of sample {place} is out of range: classes are numbered 0 to "
            f"{MOST_CLASSES - 1}"
        )
    return torch.from_numpy(numbers.astype(np.int64))


def numbered_classes(labels: torch.Tensor, where: object) -> tuple[str, ...]:
    """The class names "0" to the largest label, for labels without names.

    Args:
        labels: int64 of shape (samples,), at least one.
        where: the file, for the error.

    Raises:
        ArrnError: for a label so large that a class would have no sample, or that there would be too many classes.

    >>> numbered_classes(torch.tensor([0, 2, 1]), "a.npz")
    ('0', '1', '2')
    """
    place = int(labels.argmax())
    largest, most = int(labels[place]), min(len(labels), MOST_CLASSES)
    if not 0 <= largest < most:
        raise ArrnError(
            f"{where}: label {largest} of sample {place} is out of range: {len(labels)} samples have at most "
            f"{most} classes, numbered from 0"
        )
    return tuple(map(str, range(largest + 1)))
