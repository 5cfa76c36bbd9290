"""What a finished run leaves for figures and tables: one small JSON file, kept with the project."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arrn.documents import read_document, write_document
from arrn.errors import ArrnError
from arrn.evaluation import Report, report_from
from arrn.experiments.result_shape import RESULT_SHAPE, check_shape

__all__ = ["EXPERIMENTS", "Result", "read_result", "read_results", "result_path", "write_result"]

FORMAT, FORMAT_VERSION = "arrn-result", 1
EXPERIMENTS = ("robustness", "rivals", "efficiency", "generalization", "ablation")


@dataclass(frozen=True)
class Result:
    """A finished run: what was trained, how, and what came of it.

    Attributes:
        name: of the run in the plan, such as "arrn_cifar10-no-dropout"; a data set, a name and a seed are one run.
        experiments: those of `EXPERIMENTS` that it belongs to.
        model: {"name": as `create_model` takes it, "options": all of them}.
        kernel: "perfect", "fair" or "poor"; None for a network without one.
        dropout: Laplacian dropout's p, 0 for none; None for a network that is no ARRN.
        dataset: its name.
        split: that it was evaluated on.
        seed: of everything random.
        recipe: the resolved one, by option.
        parameters: {"base": what the lowest resolution needs, "total": all}; the same unless it is an ARRN.
        multiply_adds: of one image: {"resolution", "adapt", "multiply_adds"}.
        report: the evaluation, with accuracies, intervals, agreement and levels.
        training_seconds: of all epochs together.
        provenance: where it was trained: hardware, versions, commit.
        command: that does it again.
        discrepancies: relative difference of the logits with and without adaptation, at the run's policy, over the
            first test images: {"resolution", "discrepancy"}; for an ARRN.
        timings: inference over the whole split: {"resolution", "adapt", "seconds" (the median), "lower" and "upper"
            (quartiles), "samples", "batch_size", "precision", "device" (the GPU or processor)}; where measured.
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
            adapt: whether levels are skipped; a network that is no ARRN has the one way to run.
        """
        wanted = (adapt, self.recipe["policy"]) if self.adaptive else (None, None)
        found = [r for r in self.report.results if (r["adapt"], r["policy"]) == wanted and r["resolution"] is not None]
        return sorted(found, key=lambda point: int(point["resolution"]))

    def accuracies(self, adapt: bool = True) -> dict[int, float]:
        """Accuracy at each resolution, lowest first, at the run's own policy."""
        return {point["resolution"]: point["accuracy"] for point in self.points(adapt)}

    def document(self) -> dict[str, Any]:
        """The result as JSON holds it."""
        plain = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        return plain | {"report": self.report.document(), "experiments": list(self.experiments)}


def result_path(folder: Path, dataset: str, name: str, seed: int) -> Path:
    """Where a result lies below the folder of all results."""
    return folder / dataset / f"{name}-seed{seed}.json"


def write_result(result: Result, folder: Path) -> Path:
    """Writes a result below `folder`, whole or not at all; returns its file."""
    path = result_path(folder, result.dataset, result.name, result.seed)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_document(path, FORMAT, FORMAT_VERSION, result.document())
    except OSError as error:
        raise ArrnError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def read_result(path: Path) -> Result:
    """Reads one result.

    Raises:
        ArrnError: names the file, and the field that is not what it should be.
    """
    document = read_document(path, FORMAT, FORMAT_VERSION)
    check_shape(document, RESULT_SHAPE, str(path))
    content = {entry.name: document[entry.name] for entry in dataclasses.fields(Result)}
    for name in content["experiments"]:
        if name not in EXPERIMENTS:
            raise ArrnError(f"{path}: experiments are {', '.join(EXPERIMENTS)}; got {name!r}")
    content |= {"experiments": tuple(content["experiments"]), "report": report_from(content["report"])}
    return Result(**content)


def read_results(folder: Path) -> list[Result]:
    """Every result below `folder`, by data set, name and seed.

    Raises:
        ArrnError: names the file, and the field that is not what it should be.
    """
    if not folder.is_dir():
        raise ArrnError(f"{folder} is not a folder of results; `arrn reproduce` writes them")
    results = [read_result(path) for path in sorted(folder.glob("*/*.json"))]
    return sorted(results, key=lambda result: (result.dataset, result.name, result.seed))
