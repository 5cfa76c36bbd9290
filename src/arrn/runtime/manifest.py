"""`manifest.json`: what an exported folder holds, read as the file of a stranger."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ..errors import ArrnError
from ..reading import read_document
from .aspect import as_aspect
from .cascade import Cascade
from .levels import Grid, Policy, as_policy, covers, format_grid, level_of

MANIFEST, FORMAT, FORMAT_VERSION = "manifest.json", "arrn-export", 1

Target: TypeAlias = Literal["onnx", "pt2", "executorch"]
TARGETS: tuple[Target, ...] = ("onnx", "pt2", "executorch")

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MOST_LEVELS, _MOST_CLASSES, _LONGEST_AXIS, _MOST_CHANNELS = 64, 1_000_000, 2**24, 4096


@dataclass(frozen=True)
class ExportedFile:
    """One file of the folder.

    Attributes:
        file: its name, without any folder.
        sha256: of its content.
        bytes: its size.
        difference: between its answers and PyTorch's, the largest that was measured at export; None: not measured.
    """

    file: str
    sha256: str
    bytes: int
    difference: float | None = None


@dataclass(frozen=True)
class Quantised:
    """How the 8-bit form of a level did, whether or not it was good enough to be kept.

    Attributes:
        kept: the file; None where it lost more than a point of accuracy, or was not fast enough.
        accuracy, float_accuracy: on the same samples, of the 8-bit file and of the level's own; None: not measured.
        speed: how many times as fast as the level's own file it ran, for one input on one thread; None: not measured.
        samples: how many the accuracies are of.
        calibrated: on how many samples the ranges were found.
        reason: why it was kept, or was not.
    """

    kept: ExportedFile | None
    accuracy: float | None
    float_accuracy: float | None
    speed: float | None
    samples: int
    calibrated: int
    reason: str


@dataclass(frozen=True)
class LevelEntry:
    """One level of the network.

    Attributes:
        grid: on which inputs run.
        exported: its file.
        parameters: of the network cast to that grid.
        multiply_adds: of one input there.
        accuracy: at the resolution of the grid, from the evaluation of the network; None: not evaluated.
        int8: its 8-bit form; None where none was asked for.
    """

    grid: Grid
    exported: ExportedFile
    parameters: int
    multiply_adds: int
    accuracy: float | None = None
    int8: Quantised | None = None


@dataclass(frozen=True)
class Manifest:
    """What an exported folder holds, and how its files are used.

    Attributes:
        target: the kind of its files.
        model: the network's name.
        ndim: axes of space.
        channels: of the inputs.
        full_scale: the number in the files' input that stands for 1: 255 for images and volumes, 32768 for sound.
        any_size: whether a level's file takes inputs of any size; otherwise only those on its grid.
        output: "probabilities" of classes, or "features".
        classes: how many numbers come out for an input.
        class_names: a name for each class; None where they have none.
        window: seconds of sound that an input spans.
        policy: for sizes between two grids.
        aspect: how to fit inputs of other proportions than the grids: "stretch", "pad" or "crop".
        levels: highest first.
        all_levels: the file that chooses among the levels; None where there is none.
        resampling: the file that takes inputs of any size to a grid.
        cascade: what the calibration of the cascade found.
        facts: everything else, for people: normalisation, kernel, accuracy per resolution, provenance.
    """

    target: Target
    model: str
    ndim: int
    channels: int
    full_scale: float
    any_size: bool
    output: str
    classes: int
    class_names: tuple[str, ...] | None
    window: float | None
    policy: Policy
    aspect: str
    levels: tuple[LevelEntry, ...]
    all_levels: ExportedFile | None = None
    resampling: ExportedFile | None = None
    cascade: Cascade | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Of the levels, highest first."""
        return tuple(level.grid for level in self.levels)

    @property
    def files(self) -> tuple[ExportedFile, ...]:
        """All files of the folder but the manifest."""
        quantised = [level.int8.kept for level in self.levels if level.int8 is not None]
        every = [*(level.exported for level in self.levels), *quantised, self.all_levels, self.resampling]
        return tuple(each for each in every if each is not None)

    def to_json(self) -> dict[str, Any]:
        """All of it as data that JSON holds, with a table from the size of an input to its level."""
        document = {name: getattr(self, name) for name in _PLAIN}
        return {
            **document,
            "levels": [{**asdict(level), "grid": list(level.grid)} for level in self.levels],
            "all_levels": None if self.all_levels is None else asdict(self.all_levels),
            "resampling": None if self.resampling is None else asdict(self.resampling),
            "cascade": None if self.cascade is None else self.cascade.to_json(),
            "rule": RULES,
            "level_by_size": {policy: level_table(self.grids, policy) for policy in RULES},
            **self.facts,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Manifest:
        """The manifest that `to_json` wrote; every value that is used is checked.

        Raises:
            ArrnError: for what it could not have written.
        """
        read = _Reading(document)
        target = read.choice("target", TARGETS)
        ndim, channels = read.whole("ndim", 1, 3), read.whole("channels", 1, _MOST_CHANNELS)
        classes = read.whole("classes", 1, _MOST_CLASSES)
        names = read.names("class_names")
        if names is not None and len(names) != classes:
            raise ArrnError(f"class_names has {len(names)} names for {classes} classes")
        levels = tuple(_read_level(level, ndim) for level in read.tables("levels", 1, _MOST_LEVELS))
        _check_ladder([level.grid for level in levels])
        cascade = read.table("cascade")
        known = {*_PLAIN, "levels", "all_levels", "resampling", "cascade", "rule", "level_by_size"}
        manifest = cls(
            target=target,
            model=read.text("model"),
            ndim=ndim,
            channels=channels,
            full_scale=read.number("full_scale", 1e-9, 1e9),
            any_size=read.flag("any_size"),
            output=read.choice("output", ("probabilities", "features")),
            classes=classes,
            class_names=names,
            window=None if document.get("window") is None else read.number("window", 1e-9, 1e9),
            policy=as_policy(read.text("policy")),
            aspect=as_aspect(read.text("aspect")),
            levels=levels,
            all_levels=_read_file(read.table("all_levels")),
            resampling=_read_file(read.table("resampling")),
            cascade=None if cascade is None else Cascade.from_json(cascade),
            facts={name: value for name, value in document.items() if name not in known},
        )
        files = [each.file for each in manifest.files]
        if len(set(files)) < len(files):
            raise ArrnError("two entries name the same file")
        return manifest


_PLAIN = (
    "target",
    "model",
    "ndim",
    "channels",
    "full_scale",
    "any_size",
    "output",
    "classes",
    "class_names",
    "window",
    "policy",
    "aspect",
)

RULES: Mapping[Policy, str] = {
    "exact": "The lowest level whose grid has at least as many samples as the input along every axis; the highest "
    "level where none has. The input is interpolated up to the grid, so nothing is lost.",
    "cheap": "The highest level whose grid has at most as many samples as the input along every axis; the lowest "
    "level where none has. The input is smoothed down to the grid.",
}
"""How the level of an input follows from its size."""


def level_table(grids: Sequence[Grid], policy: Policy) -> list[dict[str, Any]]:
    """The level for inputs of equally many samples along all axes, by runs of sizes; `to` is None for "and more".

    >>> [(row["from"], row["to"], row["level"]) for row in level_table(((32, 32), (16, 16)), "exact")]
    [(1, 16, '16'), (17, None, '32')]
    """
    rows: list[dict[str, Any]] = []
    # The level can change only beside a length of a grid.
    starts = sorted({1, *(side + after for grid in grids for side in grid for after in (0, 1))})
    for start in starts:
        name = format_grid(grids[level_of(grids, (start,) * len(grids[0]), policy)])
        if rows and rows[-1]["level"] == name:
            continue
        if rows:
            rows[-1]["to"] = start - 1
        rows.append({"from": start, "to": None, "level": name})
    return rows


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an exported folder.

    Raises:
        ArrnError: for no such folder, and for a manifest that is none.
    """
    if not folder.is_dir():
        raise ArrnError(
            f"{folder} is not a folder: `arrn export` makes one that holds {MANIFEST} and the files it names"
        )
    path = folder / MANIFEST
    if not path.exists():
        raise ArrnError(f"{folder} holds no {MANIFEST}: give a folder that `arrn export` made, not a saved network")
    document = read_document(path, FORMAT, FORMAT_VERSION)
    try:
        return Manifest.from_json(document)
    except ArrnError as error:
        raise ArrnError(f"{path}: {error}") from None


class _Reading:
    """Values of a table, each checked as it is taken."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.values = table

    def whole(self, name: str, least: int, most: int) -> int:
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ArrnError(f"{name} must be a whole number from {least} to {most}, got {value!r:.80}")
        return value

    def number(self, name: str, least: float, most: float) -> float:
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise ArrnError(f"{name} must be a number from {least:g} to {most:g}, got {value!r:.80}")
        return float(value)

    def optional(self, name: str, least: float, most: float) -> float | None:
        return None if self.values.get(name) is None else self.number(name, least, most)

    def text(self, name: str) -> str:
        value = self.values.get(name)
        if not isinstance(value, str):
            raise ArrnError(f"{name} must be a text, got {value!r:.80}")
        return value

    def flag(self, name: str) -> bool:
        value = self.values.get(name)
        if not isinstance(value, bool):
            raise ArrnError(f"{name} must be true or false, got {value!r:.80}")
        return value

    def choice(self, name: str, known: Sequence[Any]) -> Any:
        value = self.values.get(name)
        if value not in known:
            raise ArrnError(f"{name} must be one of {', '.join(known)}, got {value!r:.80}")
        return value

    def table(self, name: str) -> Mapping[str, Any] | None:
        value = self.values.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise ArrnError(f"{name} must be a table or null, got {value!r:.80}")
        return value

    def tables(self, name: str, least: int, most: int) -> list[Mapping[str, Any]]:
        value = self.values.get(name)
        tables = isinstance(value, list) and all(isinstance(item, Mapping) for item in value)
        if not (tables and least <= len(value) <= most):  # type: ignore[arg-type]  # a list by now
            raise ArrnError(f"{name} must be a list of {least} to {most} tables, got {value!r:.80}")
        return list(value)  # type: ignore[arg-type]

    def names(self, name: str) -> tuple[str, ...] | None:
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ArrnError(f"{name} must be a list of names or null, got {value!r:.80}")
        return tuple(value)


def _read_file(table: Mapping[str, Any] | None) -> ExportedFile | None:
    if table is None:
        return None
    read = _Reading(table)
    name, checksum = read.text("file"), read.text("sha256")
    if not _FILE_NAME.fullmatch(name) or name == MANIFEST:
        raise ArrnError(f"a file's name must be letters, digits, dots and dashes without any folder, got {name!r:.80}")
    if not _SHA256.fullmatch(checksum):
        raise ArrnError(f"sha256 of {name} must be 64 hexadecimal digits, got {checksum!r:.80}")
    return ExportedFile(name, checksum, read.whole("bytes", 1, 2**36), read.optional("difference", 0, math.inf))


def _read_level(table: Mapping[str, Any], ndim: int) -> LevelEntry:
    read = _Reading(table)
    grid = table.get("grid")
    sides = isinstance(grid, list) and all(
        isinstance(side, int) and not isinstance(side, bool) and 1 <= side <= _LONGEST_AXIS for side in grid
    )
    if not sides or len(grid) != ndim:  # type: ignore[arg-type]  # a list by now
        raise ArrnError(f"a level's grid must be {ndim} whole numbers, got {grid!r:.80}")
    exported = _read_file(read.table("exported"))
    if exported is None:
        raise ArrnError(f"the level {grid} has no file")
    int8 = read.table("int8")
    return LevelEntry(
        grid=tuple(grid),  # type: ignore[arg-type]
        exported=exported,
        parameters=read.whole("parameters", 0, 2**62),
        multiply_adds=read.whole("multiply_adds", 0, 2**62),
        accuracy=read.optional("accuracy", 0, 1),
        int8=None if int8 is None else _read_quantised(int8),
    )


def _read_quantised(table: Mapping[str, Any]) -> Quantised:
    read = _Reading(table)
    return Quantised(
        kept=_read_file(read.table("kept")),
        accuracy=read.optional("accuracy", 0, 1),
        float_accuracy=read.optional("float_accuracy", 0, 1),
        speed=read.optional("speed", 0, 1e6),
        samples=read.whole("samples", 0, 2**62),
        calibrated=read.whole("calibrated", 0, 2**62),
        reason=read.text("reason"),
    )


def _check_ladder(grids: Sequence[Grid]) -> None:
    for upper, lower in itertools.pairwise(grids):
        if not covers(upper, lower) or upper == lower:
            raise ArrnError(f"levels must decrease, but {format_grid(lower)} follows {format_grid(upper)}")
