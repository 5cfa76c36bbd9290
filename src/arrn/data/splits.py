"""What the folders and files of each split are called."""

from __future__ import annotations

__all__ = ["SPLIT_NAMES"]

# The best first: what is called a validation split stands in for a test split that is not there.
SPLIT_NAMES = {"train": ("train",), "test": ("test", "validation", "valid", "val")}
