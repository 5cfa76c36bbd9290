"""Imagenette's classes: its published folders are named by WordNet's numbers, everyone else calls them by words."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["IMAGENETTE_FOLDERS", "imagenette_words"]

# What the published archives unpack to, the largest images first.
IMAGENETTE_FOLDERS = ("imagenette2", "imagenette2-320", "imagenette2-160")

_WORDS = {
    "n01440764": "tench",
    "n02102040": "English springer",
    "n02979186": "cassette player",
    "n03000684": "chain saw",
    "n03028079": "church",
    "n03394916": "French horn",
    "n03417042": "garbage truck",
    "n03425413": "gas pump",
    "n03445777": "golf ball",
    "n03888257": "parachute",
}


def imagenette_words(class_names: Sequence[str]) -> tuple[str, ...]:
    """Words in the place of WordNet's numbers; other names are left as they are.

    >>> imagenette_words(["n01440764", "cat"])
    ('tench', 'cat')
    """
    return tuple(_WORDS.get(name, name) for name in class_names)
