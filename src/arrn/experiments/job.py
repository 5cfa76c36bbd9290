"""A job: one run to train, evaluate and leave a result of, as data that a process of its own can be given."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from arrn.documents import read_document, write_document
from arrn.errors import ArrnError
from arrn.experiments.costs import count_parameter_range, list_multiply_adds
from arrn.experiments.folder import is_finished
from arrn.experiments.machine import Machine
from arrn.experiments.results import Result, read_result, result_path
from arrn.experiments.settings import RunSettings, read_settings
from arrn.models import DESIGNS, create_model
from arrn.training.recipe import Recipe

__all__ = ["Job", "read_job", "write_job"]

FORMAT, FORMAT_VERSION = "arrn job", 1


@dataclass(frozen=True)
class Job:
    """One run to be carried out.

    Attributes:
        name: its own among the runs on a data set.
        settings: what is trained, on what, how.
        out: the folder of all runs.
        results: the folder of all results.
        experiments: those that it belongs to, if any.
        split: that it is evaluated on.
        machine: device and the like.
        command: that does it again.
    """

    name: str
    settings: RunSettings
    out: Path
    results: Path
    experiments: tuple[str, ...] = ()
    split: str = "test"
    machine: Machine = field(default_factory=Machine)
    command: str = ""

    @property
    def dataset(self) -> str:
        """The data set's name, which the result lies under."""
        return Path(self.settings.dataset).name

    @property
    def title(self) -> str:
        """The name and the seed."""
        return f"{self.name}-seed{self.settings.seed}"

    @property
    def folder(self) -> Path:
        """The folder of its run; its job file and its output lie beside it."""
        return self.out / self.dataset / self.title

    @property
    def file(self) -> Path:
        """What its process is given."""
        return self.folder.with_name(f"{self.title}.job.json")

    @property
    def output(self) -> Path:
        """What its process says."""
        return self.folder.with_name(f"{self.title}.txt")

    def read_result(self) -> Result | None:
        """The result, None where there is none yet.

        Raises:
            ArrnError: for a result, or the beginnings of a run, with other settings.
        """
        begun = read_settings(self.folder) if self.folder.is_dir() else None
        if begun is not None and (differences := begun.differences(self.settings)):
            raise ArrnError(
                f"the run in {self.folder} was started otherwise: {'; '.join(differences)}; another --out starts anew"
            )
        path = result_path(self.results, self.dataset, self.name, self.settings.seed)
        if not path.exists():
            return None
        result = read_result(path)
        if differences := _differences(result, self.settings):
            raise ArrnError(
                f"{path} is of a run with other settings: {'; '.join(differences)}; "
                "remove it, or give another --results"
            )
        return result

    def state(self) -> str:
        """ "finished" (there is a result), "to evaluate", "interrupted" or "to do"."""
        if self.read_result() is not None:
            return "finished"
        if is_finished(self.folder):
            return "to evaluate"
        return "interrupted" if read_settings(self.folder) is not None else "to do"


def _differences(result: Result, settings: RunSettings) -> list[str]:
    """How the settings differ from those that a result came from, in words."""
    wanted: dict[str, Any] = json.loads(json.dumps({**dataclasses.asdict(settings.recipe), **settings.options}))
    found = {**result.recipe, **result.model["options"]}
    # Those of a switchable network are filled in when it is built.
    filled = {"resolutions"} if not settings.recipe.resolutions else set()
    # A named design tells its numbers nowhere: where they changed since, so did what they cost.
    if settings.model in DESIGNS:
        wanted, found = wanted | _costs_now(result), found | _costs_then(result)
    return [
        f"{name} was {found.get(name)!r} and is now {value!r}"
        for name, value in wanted.items()
        if name not in filled and found.get(name) != value
    ]


def _costs_then(result: Result) -> dict[str, Any]:
    top = max(entry["resolution"] for entry in result.multiply_adds)
    costs = [entry["multiply_adds"] for entry in result.multiply_adds if entry["resolution"] == top]
    return {"parameters": dict(result.parameters), f"multiply-adds at {top}": costs}


def _costs_now(result: Result) -> dict[str, Any]:
    top = max(entry["resolution"] for entry in result.multiply_adds)
    with torch.device("meta"):
        model = create_model(result.model["name"], **result.model["options"])
        costs = [entry["multiply_adds"] for entry in list_multiply_adds(model, [top])]
        return {"parameters": count_parameter_range(model), f"multiply-adds at {top}": costs}


def write_job(job: Job) -> Path:
    """Writes the job's file, beside the run's folder."""
    content = dataclasses.asdict(job) | {"out": str(job.out), "results": str(job.results)}
    try:
        job.file.parent.mkdir(parents=True, exist_ok=True)
        write_document(job.file, FORMAT, FORMAT_VERSION, {"job": content})
    except OSError as error:
        raise ArrnError(f"cannot write {job.file}: {error.strerror or error}") from error
    return job.file


def read_job(path: Path) -> Job:
    """Reads what `write_job` wrote.

    Raises:
        ArrnError: for a file that describes no job.
    """
    content: Any = read_document(path, FORMAT, FORMAT_VERSION).get("job")
    try:
        settings = RunSettings(**(content["settings"] | {"recipe": Recipe(**content["settings"]["recipe"])}))
        places = {name: Path(content[name]) for name in ("out", "results")}
        parts = {"machine": Machine(**content["machine"]), "experiments": tuple(content["experiments"])}
        return Job(**(content | parts | places | {"settings": settings}))
    except (TypeError, KeyError, AttributeError) as error:
        raise ArrnError(f"{path} does not describe a job: {error}") from None
