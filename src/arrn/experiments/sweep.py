"""A search over designs: every combination of some ladders, features and the like, judged on held-out images."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from arrn.errors import ArrnError
from arrn.experiments.results import Result
from arrn.writing import write_document, writing_to

FORMAT, FORMAT_VERSION = "arrn-sweep", 1


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, in steps, for a search that draws them."""

    low: float
    high: float
    step: float = 0.01

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ArrnError(f"a range should go from a number to a larger one, got {self.low:g}:{self.high:g}")

    @property
    def ends(self) -> list[float]:
        """The lowest and the highest number."""
        return [self.low, self.high]


@dataclass(frozen=True)
class Axes:
    """The choices of a search, for each option of a design.

    Attributes:
        sizes: the ladders.
        features, expansion, depth: a list for each choice, with one value for each size; the last value is the base's.
            On a ladder of another length, the last value but one is repeated or dropped: 1,1,2 becomes 1,1,1,2 on four
            sizes and 1,2 on two. A list of one value holds for every size.
        p: rates of Laplacian dropout; a range only for a search that draws designs.
        block: "inverted" or "zero_preserving".
        blockless: lists of sizes without a block, to which Laplacian dropout also lowers samples; sizes of the ladder
            are left out; an empty list for none.
        repeats: the number of blocks at each size, in lists like those of `depth`.
        block_dropout: the share of hidden channels that blocks drop in training; a range only as for `p`.
    """

    sizes: Sequence[Sequence[int]]
    features: Sequence[Sequence[int]]
    expansion: Sequence[Sequence[float]]
    depth: Sequence[Sequence[int]]
    p: Sequence[float] | Range
    block: Sequence[str] = ("inverted",)
    blockless: Sequence[Sequence[int]] = ((),)
    repeats: Sequence[Sequence[int]] = ((1,),)
    block_dropout: Sequence[float] | Range = (0.0,)


def permute(axes: Axes) -> list[dict[str, Any]]:
    """The options of the generic model for every combination, each once.

    >>> axes = Axes([[8, 4], [8, 6, 4]], [[4, 8]], [[2]], [[1, 2]], [0.4, 0.6])
    >>> [(options["sizes"], options["depth"], options["dropout"]) for options in permute(axes)][1:3]
    [([8, 4], [1, 2], 0.6), ([8, 6, 4], [1, 1, 2], 0.4)]
    """
    found: dict[str, dict[str, Any]] = {}
    choices = vars(axes)
    for name, values in choices.items():
        if isinstance(values, Range):
            raise ArrnError(f"{name} is a range, and only a search with --trials N draws from ranges: give values")
    for chosen in itertools.product(*choices.values()):
        options = make_design(dict(zip(choices, chosen, strict=True)))
        found.setdefault(design_name(options), options)
    return list(found.values())


def make_design(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the generic model for one value of each axis.

    >>> chosen = {"sizes": [8, 6, 4], "features": [4, 8], "expansion": [2], "depth": [1, 2], "repeats": [1],
    ...           "p": 0.5, "block": "inverted", "blockless": [12, 6, 2], "block_dropout": 0.0}
    >>> design = make_design(chosen)
    >>> design["features"], design["depth"], design["blockless"]
    ([4, 4, 8], [1, 1, 2], [2])
    """
    sizes = list(chosen["sizes"])
    options: dict[str, Any] = {"sizes": sizes}
    options |= {name: _fit(chosen[name], len(sizes)) for name in ("features", "expansion", "depth", "repeats")}
    options |= {"dropout": chosen["p"], "block": chosen["block"], "block_dropout": chosen["block_dropout"]}
    options["blockless"] = [size for size in chosen["blockless"] if size < sizes[0] and size not in sizes]
    return options


def _fit(values: Sequence[float], count: int) -> list[float]:
    """A list of `count` values from one of another length: its first ones and its last."""
    first, last = list(values[:-1]), values[-1]
    first += [first[-1] if first else last] * (count - len(values))
    return [*first[: count - 1], last]


def design_name(options: Mapping[str, Any]) -> str:
    """A name that states the options and can be the name of a file.

    >>> design_name({"sizes": [8, 4], "features": [4, 8], "expansion": [2, 2.5], "depth": [1, 2],
    ...              "repeats": [1, 2], "blockless": [6, 3], "dropout": 0.4, "block_dropout": 0.1,
    ...              "block": "inverted"})
    '8-4_f4-8_e2-2.5_d1-2_r1-2_b6-3_p0.4_bd0.1_inverted'
    """
    letters = {"sizes": "", "features": "f", "expansion": "e", "depth": "d", "repeats": "r", "blockless": "b"}
    # What is as in the paper goes without saying.
    left_out = {name for name in ("repeats", "blockless") if set(options[name]) <= {1}}
    lists = [
        letter + "-".join(f"{value:g}" for value in options[name])
        for name, letter in letters.items()
        if name not in left_out
    ]
    dropped = [f"bd{options['block_dropout']:g}"] if options["block_dropout"] else []
    return "_".join([*lists, f"p{options['dropout']:g}", *dropped, options["block"]])


@dataclass(frozen=True)
class Standing:
    """The accuracy and the cost of a design.

    Attributes:
        name: the name of the design.
        options: the options of the generic model.
        mean_accuracy: the mean accuracy over all resolutions, with adaptation.
        multiply_adds: the multiply-adds of one image at the highest resolution.
        parameters: the number of parameters.
        accuracies: the accuracy at each resolution.
    """

    name: str
    options: Mapping[str, Any]
    mean_accuracy: float
    multiply_adds: int
    parameters: int
    accuracies: Mapping[int, float]


def rank(results: Sequence[Result]) -> list[Standing]:
    """The designs, best mean accuracy first; results of several seeds are averaged."""
    by_name: dict[str, list[Result]] = {}
    for result in results:
        by_name.setdefault(result.name, []).append(result)
    standings = [_standing(name, seeds) for name, seeds in by_name.items()]
    return sorted(standings, key=lambda standing: (-standing.mean_accuracy, standing.multiply_adds))


def _standing(name: str, seeds: Sequence[Result]) -> Standing:
    lines = [result.accuracies() for result in seeds]
    accuracies = {size: fmean(line[size] for line in lines) for size in lines[0]}
    top = max(seeds[0].multiply_adds, key=lambda entry: (int(entry["resolution"]), bool(entry["adapt"])))
    cost, parameters = top["multiply_adds"], seeds[0].parameters["total"]
    return Standing(name, seeds[0].model["options"], fmean(accuracies.values()), cost, parameters, accuracies)


def write_standings(path: Path, standings: Sequence[Standing], front: set[str], facts: Mapping[str, Any]) -> None:
    """Writes the table as JSON, best first.

    Args:
        path: of the file.
        standings: the designs.
        front: the names of the designs on the Pareto front.
        facts: further entries of the document.
    """
    rows = [vars(standing) | {"on_front": standing.name in front} for standing in standings]
    with writing_to(path):
        write_document(path, FORMAT, FORMAT_VERSION, {**facts, "designs": rows})
