"""What the folders and files of each split are called."""

from __future__ import annotations

__all__ = ["SPLIT_NAMES"]

# The best first. A validation split stands in for a test split that is not there; beside one it is a third split.
SPLIT_NAMES = {
    "train": ("train", "training"),
    "test": ("test", "testing"),
    "validation": ("validation", "valid", "val"),
}
