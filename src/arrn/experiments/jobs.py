"""A job: one run to train, evaluate and leave a result of; as data, and carried out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from arrn.data import Examined, Normalisation
from arrn.errors import ArrnError, first_line
from arrn.evaluation import Report, Resampler, affordable_batch
from arrn.experiments.costs import (
    count_parameter_range,
    list_multiply_adds,
    measure_discrepancies,
    measure_inference,
)
from arrn.experiments.plan import resolutions_for
from arrn.experiments.results import Result, check_shape, read_result, result_path, write_result
from arrn.models import DESIGNS, create_model
from arrn.nn import ARRN
from arrn.nn.network import as_network, config_of
from arrn.reading import read_document
from arrn.runs.device import pick_device
from arrn.runs.evaluating import evaluate_run, load_network
from arrn.runs.run_folder import LOG, RECIPE_FILE, is_finished, locked
from arrn.runs.settings import Machine, RunSettings, read_run_file, read_settings, settings_from
from arrn.runs.splits import open_split
from arrn.runs.training import run_training
from arrn.signal.grid import grid_of
from arrn.signal.kernels import kernel_options
from arrn.signal.resample import resample
from arrn.training import Watcher, read_recipe
from arrn.training.log import read_log
from arrn.training.step import order_memory
from arrn.writing import write_document, writing_to

FORMAT, FORMAT_VERSION = "arrn-job", 1
_JOB_SHAPE: dict[str, Any] = {
    "name": str,
    "settings": {},
    "out": str,
    "results": str,
    "experiments": [str],
    "split": str,
    "machine": {"device": str, "stream": bool | None, "workers": int, "checkpoint_every": float | int | None},
    "command": str,
}
TIMED_BATCH = 256
_COMPARED = 256  # images whose logits are compared with and without adaptation


@dataclass(frozen=True)
class Job:
    """One run to carry out.

    Attributes:
        name: the name of the run, unique among the runs on a data set.
        settings: the network, the data set and the recipe.
        out: the folder of all runs.
        results: the folder of all results.
        experiments: the experiments that the run belongs to, if any.
        split: the split that the network is evaluated on.
        machine: the device and other settings of this machine.
        command: the command that repeats the run.
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
        """The data set's name, which is also the name of the folder of its results."""
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
        """The job's file, which its process reads."""
        return self.folder.with_name(f"{self.title}.job.json")

    @property
    def output(self) -> Path:
        """The file of the messages of its process."""
        return self.folder.with_name(f"{self.title}.txt")

    @property
    def lock(self) -> Path:
        """The lock that a process holds while it works on the job."""
        return self.folder.with_name(f"{self.title}.lock")

    def read_result(self) -> Result | None:
        """The result, None where there is none yet.

        Raises:
            ArrnError: for a result, or the beginnings of a run, with other settings.
        """
        path = result_path(self.results, self.dataset, self.name, self.settings.seed)
        try:
            has_begun, has_ended = self.folder.is_dir(), path.exists()
        except OSError as error:  # a name that no file can have
            raise ArrnError(f"cannot look for the run {self.title!r:.80}: {error.strerror or error}") from error
        begun = read_settings(self.folder) if has_begun else None
        if begun is not None and (differences := begun.differences(self.settings)):
            raise ArrnError(
                f"the run in {self.folder} was started with other settings: {'; '.join(differences)}; another --out "
                "starts a new run"
            )
        if not has_ended:
            return None
        result = read_result(path)
        if differences := differences_from(result, self.settings):
            raise ArrnError(
                f"{path} is the result of a run with other settings: {'; '.join(differences)}; "
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


def differences_from(result: Result, settings: RunSettings) -> list[str]:
    """How settings differ from those that a result came from, in words; nothing where they are the same."""
    wanted: dict[str, Any] = json.loads(json.dumps({**dataclasses.asdict(settings.recipe), **settings.options}))
    found = {**result.full_recipe, **result.model["options"]}
    # Those of a switchable network are filled in when it is built.
    filled = {"resolutions"} if not settings.recipe.resolutions else set()
    filled |= set() if result.adaptive else {"policy"}  # which changes nothing there
    # A named design tells its numbers nowhere: where they changed since, so did what they cost.
    if settings.model in DESIGNS:
        wanted, found = wanted | _costs_now(result), found | _costs_then(result)
    return [
        f"{name} was {found.get(name)!r} and is now {value!r}"
        for name, value in wanted.items()
        if name not in filled and found.get(name) != value
    ]


def _costs_then(result: Result) -> dict[str, Any]:
    return _costs(result.parameters, result.multiply_adds)


def _costs_now(result: Result) -> dict[str, Any]:
    top = max(entry["resolution"] for entry in result.multiply_adds)
    with torch.device("meta"):
        model = create_model(result.model["name"], **result.model["options"])
        return _costs(count_parameter_range(model), list_multiply_adds(model, [top]))


def _costs(parameters: Mapping[str, int], multiply_adds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    top = max(multiply_adds, key=lambda entry: (int(entry["resolution"]), bool(entry["adapt"])))
    return {
        "the number of parameters": parameters["total"],
        "the number of parameters at the base": parameters["base"],
        f"the number of multiply-adds at {top['resolution']}": top["multiply_adds"],
    }


def write_job(job: Job) -> Path:
    """Writes the job's file, beside the run's folder."""
    content = dataclasses.asdict(job) | {"out": str(job.out), "results": str(job.results)}
    with writing_to(job.file):
        write_document(job.file, FORMAT, FORMAT_VERSION, {"job": content})
    return job.file


def read_job(path: Path) -> Job:
    """Reads what `write_job` wrote.

    Raises:
        ArrnError: for a file that describes no job.
    """
    content: Any = read_document(path, FORMAT, FORMAT_VERSION).get("job")
    try:
        check_shape(content, _JOB_SHAPE, "job")
        places = {name: Path(content[name]) for name in ("out", "results")}
        parts = {"machine": Machine(**content["machine"]), "experiments": tuple(content["experiments"])}
        return Job(**(content | parts | places | {"settings": settings_from(content["settings"], "job")}))
    except (ArrnError, TypeError) as error:
        raise ArrnError(f"{path} does not describe a job: {first_line(error)}") from None


def carry_out(
    job: Job,
    watcher: Watcher | None = None,
    say: Callable[[str], None] = lambda text: None,
    patience: float = 0.0,
) -> Path:
    """Trains a network, or continues its training, then evaluates it; returns the file of the result.

    Args:
        job: the job to carry out.
        watcher: sees the progress.
        say: called with messages for the user, a line each.
        patience: seconds to wait for another process that works on the job.

    Raises:
        ArrnError: for wrong input.
        RunError: for a run that had to stop.
    """
    device = pick_device(job.machine.device)
    with locked(job.lock, patience):
        run_training(job.settings, job.folder, job.machine, resume=job.folder.exists(), watcher=watcher, say=say)
        examined = open_split(job.settings, job.split)
        resolutions = resolutions_for(max(map(max, examined.sizes)), job.dataset)
        say(f"evaluating at {', '.join(map(str, resolutions))}")
        report = _evaluated(job, resolutions, None)
        model, _, normalisation = load_network(job.folder, device)
        kernel = as_network(model).kernel if isinstance(model, ARRN) else None
        own: Sequence[Mapping[str, Any]] = ()
        if kernel is not None and kernel.name != "perfect":
            say(f"again, with images lowered by the {kernel.name} kernel")
            own = _evaluated(job, resolutions, kernel_options(kernel)).results
        images = _first_images(examined, normalisation, device)
        discrepancies = measure_discrepancies(model.eval(), images, resolutions)
        return write_result(_result(job, model, report, own, resolutions, discrepancies), job.results)


def _evaluated(job: Job, resolutions: Sequence[int], resampler: Resampler | None) -> Report:
    return evaluate_run(
        job.folder,
        resolutions,
        data=job.settings.data,
        split=job.split,
        resampler=resampler,
        device=job.machine.device,
        stream=job.machine.stream,
        workers=job.machine.workers,
    )


def _first_images(examined: Examined, normalisation: Normalisation, device: torch.device) -> torch.Tensor:
    """Images to compare the ways to run a network on, in one tensor: all are brought to the first one's size."""
    count = min(affordable_batch(_COMPARED, examined.sizes), len(examined.source))
    images = [normalisation(examined.source.read(n)[None].to(device)) for n in range(count)]
    return torch.cat([resample(image, grid_of(images[0])) for image in images])


def _result(
    job: Job,
    model: nn.Module,
    report: Report,
    own_kernel: Sequence[Mapping[str, Any]],
    resolutions: tuple[int, ...],
    discrepancies: list[dict[str, Any]],
) -> Result:
    config = config_of(model)
    network = as_network(model)
    p = config["options"].get("dropout") if network.adapts else None
    return Result(
        name=job.name,
        experiments=job.experiments,
        model=config,
        kernel=None if network.kernel is None else network.kernel.name,
        dropout=sum(p) / len(p) if isinstance(p, list) else p,
        dataset=job.dataset,
        split=job.split,
        seed=job.settings.seed,
        recipe=dataclasses.asdict(read_recipe(job.folder / RECIPE_FILE)),
        parameters=count_parameter_range(model),
        multiply_adds=list_multiply_adds(model, resolutions),
        report=report,
        training_seconds=round(sum(entry.get("seconds", 0) for entry in read_log(job.folder / LOG)), 3),
        provenance=read_run_file(job.folder).get("provenance", {}),
        command=job.command,
        discrepancies=discrepancies,
        own_kernel=own_kernel,
    )


def measure_times(job: Job, repeats: int | None = None) -> Path:
    """Adds the times of inference to a finished job's result; nothing else should run meanwhile.

    Args:
        job: one with a result.
        repeats: how often each is measured; by default 10 times, as in the paper, and 3 on a CPU.
    """
    result = job.read_result()
    assert result is not None
    device = pick_device(job.machine.device)
    model = create_model(result.model["name"], **result.model["options"])  # weights do not matter for its time
    order_memory(model.to(device), as_network(model).ndim)
    resolutions = [entry["resolution"] for entry in result.report.results]
    resolutions = list(dict.fromkeys(resolution for resolution in resolutions if resolution is not None))
    samples = result.report.results[0]["total"]
    often = repeats or (3 if device.type == "cpu" else 10)
    timings = measure_inference(model, resolutions, samples, TIMED_BATCH, often)
    return write_result(dataclasses.replace(result, timings=timings), job.results)
