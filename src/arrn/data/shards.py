"""Which files of a folder, on disk or in a store, are the shards of a split."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from arrn.data.bounds import check_class_names
from arrn.data.source import SPLIT_NAMES
from arrn.data.storage import StoredFile, files_at, is_remote, list_folder
from arrn.errors import ArrnError
from arrn.reading import LARGEST_DOCUMENT

PARQUET, TAR, CLASS_NAMES = ".parquet", ".tar", "classnames.txt"
_NUMBERED = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.(?P<suffix>parquet|tar)")
_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST_SHARDS = 2**20


def is_pattern(address: str) -> bool:
    """Whether an address names shards rather than the folder that holds them: by braces, or as one of them.

    >>> is_pattern("s3://b/train-{000..127}.tar"), is_pattern("/data/x.parquet"), is_pattern("s3://b/set")
    (True, True, False)
    """
    return bool(_BRACES.search(address)) or address.endswith((PARQUET, TAR))


def expand_braces(address: str) -> list[str]:
    """The addresses that one with braces stands for, as a shell makes them.

    >>> expand_braces("{train,val}-{08..10}.tar")
    ['train-08.tar', 'train-09.tar', 'train-10.tar', 'val-08.tar', 'val-09.tar', 'val-10.tar']
    """
    braces = _BRACES.search(address)
    if braces is None:
        return [address]
    parts, ends = list(_alternatives(braces[1])), expand_braces(address[braces.end() :])
    if len(parts) * len(ends) > _MOST_SHARDS:
        raise ArrnError(f"{address} stands for more than {_MOST_SHARDS:,} files")
    return [address[: braces.start()] + part + end for part in parts for end in ends]


def _alternatives(text: str) -> Iterator[str]:
    numbers = re.fullmatch(r"(\d+)\.\.(\d+)", text)
    if numbers is None:
        yield from text.split(",")
        return
    first, last = int(numbers[1]), int(numbers[2])
    if not 0 <= last - first < _MOST_SHARDS:
        raise ArrnError(f"{{{text}}} should go up, from a number to a larger one, over at most {_MOST_SHARDS:,} files")
    for number in range(first, last + 1):
        yield f"{number:0{len(numbers[1])}}"


@dataclass
class ShardFolder:
    """A root in which shards are looked for; what is listed is listed once.

    Args:
        address: a folder on disk or in a store, or a pattern (`is_pattern`).
    """

    address: str
    _listed: dict[str, list[StoredFile]] = field(default_factory=dict)
    _folders: list[str] = field(default_factory=list)

    def files(self, below: str = "") -> list[StoredFile]:
        """The files in the root, or in the folder of that name in it; none where there is no such folder."""
        if not self._listed:
            if is_pattern(self.address):
                self._listed[""] = files_at(expand_braces(self.address))
            else:
                self._listed[""], self._folders = list_folder(self.address, (PARQUET, TAR, CLASS_NAMES))
        if below and below not in self._listed:
            inner = f"{self.address.rstrip('/')}/{below}" if is_remote(self.address) else str(Path(self.address, below))
            self._listed[below] = list_folder(inner, (PARQUET, TAR))[0] if below in self._folders else []
        return self._listed[below]

    def find(self, split: str, suffix: str) -> list[list[StoredFile]]:
        """The shards of a split, for each of the names that it may go by (`SPLIT_NAMES`) and that is there.

        Looks for ROOT/train-*.parquet, ROOT/train.parquet, the same in ROOT/data, and ROOT/train/*.parquet; tar files
        may have words before the split's, as imagenet-train-0001.tar has. Files that a pattern names are of the
        training split where their names do not say otherwise.
        """
        found = []
        for name in SPLIT_NAMES[split]:
            before = r"(?:.*[-_.])?" if suffix == TAR else ""
            of_split = re.compile(rf"{before}{name}[-_.].*" if suffix == TAR else rf"{name}[-.].*").fullmatch
            for below in ("", "data", name):
                files = [file for file in self.files(below) if file.name.endswith(suffix)]
                files = [file for file in files if below == name or of_split(file.name)]
                if files:
                    _check_numbers(files)
                    found.append(files)
                    break
        if not found and split == "train" and is_pattern(self.address):
            found_others = chain.from_iterable(self.find(other, suffix) for other in SPLIT_NAMES if other != "train")
            others = set(chain.from_iterable(found_others))
            left = [file for file in self.files() if file.name.endswith(suffix) and file not in others]
            found = [left] if left else []
        return found

    def class_names(self) -> list[str] | None:
        """The lines of `classnames.txt` in the root, which tar files have no place for; None where there is none."""
        self.files()
        file = next((file for file in self._listed[""] if file.name == CLASS_NAMES), None)
        if file is None or file.size > LARGEST_DOCUMENT:
            return None
        try:
            text = file.read(0, file.size).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ArrnError(f"{file.address} should hold the name of a class in each line: {error}") from None
        names = [line for line in text.splitlines() if not line.isspace() and line]
        check_class_names(names, file.address)
        return list(map(str.strip, names))


def _check_numbers(files: Sequence[StoredFile]) -> None:
    """Raises if one of a set of numbered files is missing: training on the rest would go unnoticed."""
    there = {file.name for file in files}
    for file in files:
        if (shard := _NUMBERED.fullmatch(file.name)) is None:
            continue
        stem, count = shard["stem"], int(shard["count"])
        for number in range(count):
            part = f"{stem}-{number:05d}-of-{count:05d}.{shard['suffix']}"
            if part not in there:
                place = file.address.removesuffix(file.name)
                raise ArrnError(f"{place}{part} is missing: by its name, {file.name} is one of {count} files")
