"""Where the parquet files of each split lie under a root."""

from __future__ import annotations

import re
from pathlib import Path

from arrn.data.splits import SPLIT_NAMES
from arrn.errors import ArrnError

__all__ = ["find_parquet"]

SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.parquet")


def find_parquet(root: Path, split: str) -> list[list[Path]]:
    """The files of a split, for each of the names that it may go by (`SPLIT_NAMES`) and that is there.

    Looks for ROOT/train-*.parquet, ROOT/train.parquet, the same in ROOT/data, and ROOT/train/*.parquet.
    """
    found = []
    for name in SPLIT_NAMES[split]:
        for folder, pattern in ((root, f"{name}[-.]*"), (root / "data", f"{name}[-.]*"), (root / name, "*")):
            files = sorted(path for path in folder.glob(pattern) if path.suffix == ".parquet")
            if files:
                _check_shards(files)
                found.append(files)
                break
    return found


def _check_shards(files: list[Path]) -> None:
    """Raises if one of a set of numbered files is missing: training on the rest would go unnoticed."""
    for file in files:
        if (shard := SHARD.fullmatch(file.name)) is None:
            continue
        stem, count = shard["stem"], int(shard["count"])
        for number in range(count):
            part = file.with_name(f"{stem}-{number:05d}-of-{count:05d}.parquet")
            if part not in files:
                raise ArrnError(f"{part} is missing: {file.name} is one of {count} files")
