"""The result of an experiment's run: a JSON file, whose fields are checked when it is read."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arrn.errors import ArrnError
from arrn.evaluation import Report, report_from
from arrn.reading import read_document
from arrn.training.recipe import PAPER_CIFAR
from arrn.writing import write_document, writing_to

FORMAT, FORMAT_VERSION = "arrn-result", 1
EXPERIMENTS = ("robustness", "rivals", "efficiency", "generalization", "ablation", "frontier")


@dataclass(frozen=True)
class Result:
    """A finished run of the experiments: the network, its training, its accuracy and its cost.

    Attributes:
        name: the run's name in the plan, such as "arrn_cifar10-no-dropout". A data set, a name and a seed name one run.
        experiments: the experiments, of `EXPERIMENTS`, that the run belongs to.
        model: {"name": as `create_model` takes it, "options": all options of the network}.
        kernel: "perfect", "fair" or "poor"; None for a network without a kernel.
        dropout: the rate p of Laplacian dropout, 0 for none; None for a network that is not an ARRN.
        dataset: the name of the data set.
        split: the split that the network was evaluated on.
        seed: the seed of all random numbers.
        recipe: every option of the recipe, with its value.
        parameters: {"base": the parameters that run at the lowest resolution, "total": all parameters}; the two are
            equal unless the network is an ARRN.
        multiply_adds: the multiply-adds of one image: {"resolution", "adapt", "multiply_adds"}.
        report: the evaluation, with accuracies, intervals, agreement and levels.
        training_seconds: the time of all epochs together.
        provenance: the hardware, the versions and the commit of the training.
        command: the command that repeats the run.
        discrepancies: for an ARRN, the relative difference of the logits with and without adaptation, at the run's
            policy, over the first test images: {"resolution", "discrepancy"}.
        timings: where measured, the time of inference over the whole split: {"resolution", "adapt", "seconds" (the
            median), "lower" and "upper" (quartiles), "samples", "batch_size", "precision", "device" (the GPU or
            processor)}.
        own_kernel: for an ARRN with another kernel than the perfect one, the report's results for samples that were
            lowered by the network's own kernel.
    """

    name: str
    experiments: tuple[str, ...]
    model: Mapping[str, Any]
    kernel: str | None
    dropout: float | None
    dataset: str
    split: str
    seed: int
    recipe: Mapping[str, Any]
    parameters: Mapping[str, int]
    multiply_adds: Sequence[Mapping[str, Any]]
    report: Report
    training_seconds: float
    provenance: Mapping[str, Any]
    command: str
    discrepancies: Sequence[Mapping[str, Any]] = ()
    timings: Sequence[Mapping[str, Any]] = ()
    own_kernel: Sequence[Mapping[str, Any]] = ()

    @property
    def epochs(self) -> int:
        """Passes over the training set."""
        return int(self.recipe["epochs"])

    @property
    def adaptive(self) -> bool:
        """Whether it is an ARRN."""
        return self.dropout is not None

    def points(self, adapt: bool = True) -> list[Mapping[str, Any]]:
        """The report's entries at the run's own policy, lowest resolution first.

        Args:
            adapt: whether levels are skipped; without effect on a network that is not an ARRN.
        """
        wanted = (adapt, self.recipe["policy"]) if self.adaptive else (None, None)
        found = [r for r in self.report.results if (r["adapt"], r["policy"]) == wanted and r["resolution"] is not None]
        return sorted(found, key=lambda point: int(point["resolution"]))

    def accuracies(self, adapt: bool = True) -> dict[int, float]:
        """Accuracy at each resolution, lowest first, at the run's own policy."""
        return {point["resolution"]: point["accuracy"] for point in self.points(adapt)}

    def lowered_by_own_kernel(self) -> Result | None:
        """The result for samples lowered by the network's own kernel; None where these were not evaluated."""
        if self.kernel == "perfect":
            return self
        if not self.own_kernel:
            return None
        return dataclasses.replace(self, report=dataclasses.replace(self.report, results=self.own_kernel))

    @property
    def full_recipe(self) -> dict[str, Any]:
        """The recipe as JSON stores it. Options that are newer than the result have their defaults."""
        complete: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(PAPER_CIFAR) | dict(self.recipe)))
        return complete

    def document(self) -> dict[str, Any]:
        """The result as JSON stores it."""
        plain = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        return plain | {"report": self.report.document(), "experiments": list(self.experiments)}


def result_path(folder: Path, dataset: str, name: str, seed: int) -> Path:
    """The file of a result in the folder of all results."""
    return folder / dataset / f"{name}-seed{seed}.json"


def write_result(result: Result, folder: Path) -> Path:
    """Writes a result into `folder` and returns its file. A failed write leaves no part of a file."""
    path = result_path(folder, result.dataset, result.name, result.seed)
    with writing_to(path):
        write_document(path, FORMAT, FORMAT_VERSION, result.document())
    return path


def read_result(path: Path) -> Result:
    """Reads one result.

    Raises:
        ArrnError: for a file that is not a result; the error names the file and the wrong field.
    """
    document = {"own_kernel": []} | read_document(path, FORMAT, FORMAT_VERSION)  # older files do not have it
    check_shape(document, RESULT_SHAPE, str(path))
    content = {entry.name: document[entry.name] for entry in dataclasses.fields(Result)}
    for name in content["experiments"]:
        if name not in EXPERIMENTS:
            raise ArrnError(f"{path}: experiments are {', '.join(EXPERIMENTS)}; got {name!r}")
    content |= {"experiments": tuple(content["experiments"]), "report": report_from(content["report"])}
    result = Result(**content)
    _check_answers(result, str(path))
    return result


def _check_answers(result: Result, where: str) -> None:
    """Refuses a report that figures could not be drawn of."""
    for name, answers in (("report.results", result.report.results), ("own_kernel", result.own_kernel)):
        for number, answer in enumerate(answers):
            _check_answer(answer, f"{where}.{name}[{number}]")
    for each in filter(None, (result, result.lowered_by_own_kernel())):
        if not (each.points() and each.points(adapt=False)):
            policy = result.recipe["policy"]
            raise ArrnError(f"{where}: the report has no results for the run's own policy, {policy!r:.80}")


def _check_answer(answer: Mapping[str, Any], place: str) -> None:
    if len(answer["interval"]) != 2:
        raise ArrnError(f"{place}.interval should be two numbers, got {answer['interval']!r:.80}")
    check_shape(answer.get("agreement", 0), Number, f"{place}.agreement")
    shares = [answer["accuracy"], answer["balanced_accuracy"], answer.get("agreement", 0), *answer["interval"]]
    if not all(0 <= share <= 1 for share in shares):
        raise ArrnError(f"{place}: accuracies, agreement and interval should be from 0 to 1, got {shares!r:.80}")
    for name, least in (("resolution", 1), ("total", 1), ("correct", 0)):
        if answer[name] is not None and answer[name] < least:
            raise ArrnError(f"{place}.{name} should be at least {least}, got {answer[name]}")


def read_results(folder: Path) -> list[Result]:
    """Every result in `folder`, sorted by data set, name and seed.

    Raises:
        ArrnError: for a file that is not a result; the error names the file and the wrong field.
    """
    if not folder.is_dir():
        raise ArrnError(f"{folder} is not a folder of results; `arrn reproduce` writes them")
    results = [read_result(path) for path in sorted(folder.glob("*/*.json"))]
    return sorted(results, key=lambda result: (result.dataset, result.name, result.seed))


Number = int | float

_ANSWER_SHAPE: dict[str, Any] = {
    "resolution": int | None,
    "adapt": bool | None,
    "policy": str | None,
    "accuracy": Number,
    "correct": int,
    "total": int,
    "interval": [Number],
    "balanced_accuracy": Number,
    "levels": [{"grid": str, "correct": int, "total": int}],
}

RESULT_SHAPE: dict[str, Any] = {
    "name": str,
    "experiments": [str],
    "model": {"name": str, "options": {}},
    "kernel": str | None,
    "dropout": float | int | None,
    "dataset": str,
    "split": str,
    "seed": int,
    "recipe": {"epochs": int, "policy": str, "resolutions": [int]},
    "parameters": {"base": int, "total": int},
    "multiply_adds": [{"resolution": int, "adapt": bool | None, "multiply_adds": int}],
    "report": {
        "model": str,
        "dataset": str,
        "split": str,
        "resampler": object,
        "skipped": int,
        "provenance": {},
        "results": [_ANSWER_SHAPE],
    },
    "discrepancies": [{"resolution": int, "discrepancy": Number}],
    "timings": [
        {
            "resolution": int,
            "adapt": bool | None,
            "seconds": Number,
            "lower": Number,
            "upper": Number,
            "samples": int,
            "batch_size": int,
            "precision": str,
            "device": str,
        }
    ],
    "own_kernel": [_ANSWER_SHAPE],
    "training_seconds": Number,
    "provenance": {"arrn": str, "torch": str, "commit": str | None, "gpu": str | None},
    "command": str,
}
"""A dictionary has at least these keys, a list holds items of this shape, everything else is a type."""


def check_shape(value: Any, shape: Any, where: str) -> None:
    """Refuses a value that does not have the shape.

    >>> check_shape({"a": [1, 2]}, {"a": [int]}, "here")

    Raises:
        ArrnError: for such a value; the error names the place and the expected type.
    """
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            raise ArrnError(f"{where} should be an object, got {value!r:.80}")
        for name, inner in shape.items():
            if name not in value:
                raise ArrnError(f"{where} has no {name!r}")
            check_shape(value[name], inner, f"{where}.{name}")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise ArrnError(f"{where} should be a list, got {value!r:.80}")
        for number, item in enumerate(value):
            check_shape(item, shape[0], f"{where}[{number}]")
    # Python takes True for a whole number; JSON does not.
    elif not isinstance(value, shape) or (isinstance(value, bool) and not isinstance(True, _without_numbers(shape))):
        raise ArrnError(f"{where} should be {getattr(shape, '__name__', shape)}, got {value!r:.80}")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ArrnError(f"{where} should be a finite number, got {value}")


def _without_numbers(shape: Any) -> tuple[type, ...]:
    kinds: tuple[type, ...] = getattr(shape, "__args__", (shape,))
    return tuple(kind for kind in kinds if kind not in (int, float))
