"""Calibrating the cascade: which climbs pay on held-out inputs, and what they cost and bring on others."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from arrn.data import Examined
from arrn.errors import ArrnError, plain
from arrn.evaluation import wilson_interval
from arrn.model_folder import CHECKSUM, checksum_in, read_config
from arrn.provenance import provenance
from arrn.reading import read_document
from arrn.runtime import Cascade
from arrn.runtime.cascade import Climb, Point, find_points, run_cascade, run_plain
from arrn.runtime.files import Array
from arrn.signal.grid import format_grid
from arrn.writing import write_atomically, write_document, writing_to

if TYPE_CHECKING:
    from arrn.runtime import Predictor

CASCADE = "cascade.json"
"""The file beside a network that holds the calibration of its cascade."""

_FORMAT, _VERSION = "arrn-cascade", 2  # version 1 had a threshold for all levels
_TOGETHER = 64

logger = logging.getLogger(__name__)


def read_cascade(folder: Path) -> Cascade | None:
    """The calibration beside a network; None where there is none.

    One that cannot be read, or is of other weights, is left out too, and a warning says so: nothing else needs it.
    """
    path = folder / CASCADE
    if not path.exists():
        return None
    try:
        document = read_document(path, _FORMAT, _VERSION)
        if document.get(CHECKSUM) != checksum_in(read_config(folder)):
            raise ArrnError(f"{path} was calibrated for other weights than those in the folder")
        return Cascade.from_json(document)
    except ArrnError as error:
        logger.warning("the calibration of the cascade is ignored: %s", plain(error))
        return None


def write_cascade(folder: Path, cascade: Cascade) -> Path:
    """Writes the calibration beside the network that it is of."""
    path = folder / CASCADE
    with writing_to(path):
        write_document(path, _FORMAT, _VERSION, {CHECKSUM: checksum_in(read_config(folder)), **cascade.to_json()})
    return path


@dataclass(frozen=True)
class _Measured:
    """What every level says of every input, as `run_cascade` takes it."""

    confidences: Array
    right: Array
    highest: Array
    costs: tuple[int, ...]

    def at(self, point: Point) -> tuple[Array, Array]:
        """For each input, the multiply-adds and whether the answer is right."""
        climb = Climb(point.threshold or 0.0, point.levels)
        return run_cascade(self.confidences, self.right, self.highest, self.costs, climb)

    def plain(self) -> tuple[Array, Array]:
        """The same without a cascade."""
        return run_plain(self.right, self.highest, self.costs)


def calibrate(
    predictor: Predictor,
    inputs: Iterable[object],
    labels: Sequence[int],
    source: str = "",
    progress: Callable[[int], None] | None = None,
) -> Cascade:
    """The levels and thresholds that are worth their cost on inputs held out of training, with cost and accuracy.

    Set ``predictor.cascade`` to the result to use `budget`; `write_cascade` writes the result beside a network.

    Args:
        predictor: the predictor of a network with several levels.
        inputs: inputs that the predictor takes, each at its own size.
        labels: the number of each input's class.
        source: a description of the inputs, in words.
        progress: told the number of inputs done so far.

    Raises:
        ArrnError: for a network of one level, and for inputs that cannot be read.
    """
    found = _measure(predictor, inputs, labels, progress)
    points = find_points(found.confidences, found.right, found.highest, found.costs)
    paid, hits = found.plain()
    plain = Point(None, float(paid.mean()), float(hits.mean()))
    return Cascade(points, plain, len(labels), source, predictor.policy)


def _measure(
    predictor: Predictor,
    inputs: Iterable[object],
    labels: Sequence[int],
    progress: Callable[[int], None] | None = None,
) -> _Measured:
    levels = range(len(predictor.grids))
    costs = [predictor.cost(level) for level in levels]
    known = [cost for cost in costs if cost is not None]
    if len(levels) < 2 or len(known) < len(costs):
        raise ArrnError("a cascade needs a network with several levels, such as an ARRN; this network skips no levels")
    right = np.zeros((len(labels), len(levels)), bool)
    confidences = np.zeros((len(labels), len(levels)))
    highest = np.zeros(len(labels), int)
    done = 0
    remaining = iter(inputs)
    while signals := [predictor.read(given) for given in islice(remaining, _TOGETHER)]:
        if done + len(signals) > len(labels):
            raise ArrnError(f"there are more inputs than the {len(labels)} labels")
        highest[done : done + len(signals)] = [predictor.level_of(signal.size) for signal in signals]
        for level in levels:
            places = [n for n in range(len(signals)) if level >= highest[done + n]]
            if places:
                rows = predictor.run_bounded(level, [signals[n] for n in places])[0]
                for n, row in zip(places, rows, strict=True):
                    confidences[done + n, level] = row.max()
                    right[done + n, level] = row.argmax() == labels[done + n]
        done += len(signals)
        if progress is not None:
            progress(done)
    if done < len(labels) or not done:
        raise ArrnError(f"there are {done} inputs for {len(labels)} labels: each input needs one")
    return _Measured(confidences, right, highest, tuple(known))


@dataclass(frozen=True)
class CascadeReport:
    """What `arrn evaluate --cascade` found.

    Attributes:
        model: the network's name.
        dataset: the name of the data set.
        cascade: the climbs, calibrated on the validation split.
        results: of each climb on the test split: threshold, visited (grids, lowest first), multiply_adds, accuracy,
            interval.
        plain: the same without a cascade: each input on the level of its own size.
        levels: the same for each level alone, for inputs of at least its grid: what `grid` it is, and how many `total`.
        facts: splits, numbers of samples, provenance.
    """

    model: str
    dataset: str
    cascade: Cascade
    results: tuple[dict[str, Any], ...]
    plain: dict[str, Any]
    levels: tuple[dict[str, Any], ...]
    facts: dict[str, Any]

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes all of it as JSON, whole or not at all."""
        with writing_to(Path(path)):
            write_atomically(Path(path), (json.dumps(asdict(self), indent=2) + "\n").encode())


def calibrate_run(
    predictor: Predictor,
    held_out: Examined,
    test: Examined,
    *,
    model: str,
    progress: Callable[[int, int], None] | None = None,
) -> CascadeReport:
    """Calibrates the cascade on samples that were held out of training, and measures it on the test split.

    Args:
        predictor: of the trained network.
        held_out: where levels and thresholds are chosen; never the test split.
        test: where what they cost and bring is measured.
        model: the network's name.
        progress: told the number of samples done, and of all.
    """
    total = len(held_out.sizes) + len(test.sizes)

    def tell(before: int) -> Callable[[int], None] | None:
        return None if progress is None else lambda done: progress(before + done, total)

    words = f"{len(held_out.sizes):,} held-out {held_out.source.form.words} of "
    labels = held_out.source.labels.tolist()
    cascade = calibrate(predictor, _samples(held_out), labels, f"{words}{held_out.source.name}", tell(0))
    found = _measure(predictor, _samples(test), test.source.labels.tolist(), tell(len(held_out.sizes)))
    return CascadeReport(
        model=model,
        dataset=test.source.name,
        cascade=cascade,
        results=tuple(
            {
                "threshold": point.threshold,
                "visited": [format_grid(predictor.grids[level]) for level in reversed(point.levels or ())],
                **_share(*found.at(point)),
            }
            for point in cascade.points
        ),
        plain=_share(*found.plain()),
        levels=tuple(_alone(found, level, format_grid(grid)) for level, grid in enumerate(predictor.grids)),
        facts={
            "policy": predictor.policy,
            "held_out": len(held_out.sizes),
            "test": len(test.sizes),
            "skipped": len(test.bad),
            "provenance": provenance(),
        },
    )


def _samples(examined: Examined) -> Iterable[object]:
    return (examined.source.read(index) for index in range(len(examined.source)))


def _share(paid: Array, right: Array) -> dict[str, Any]:
    hits, total = int(right.sum()), len(right)
    interval = list(wilson_interval(hits, total))
    return {"multiply_adds": float(paid.mean()), "accuracy": hits / total, "interval": interval, "total": total}


def _alone(found: _Measured, level: int, grid: str) -> dict[str, Any]:
    """A level by itself: inputs that are too small for it stay on the level of their own size."""
    return {"grid": grid, **_share(*run_plain(found.right, np.maximum(found.highest, level), found.costs))}
