"""Carrying out a job: from where it was left to its result."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from arrn.data import Normalisation
from arrn.evaluation import Report, affordable_batch
from arrn.experiments.costs import (
    count_parameter_range,
    list_multiply_adds,
    measure_discrepancies,
    measure_inference,
)
from arrn.experiments.device import pick_device
from arrn.experiments.folder import LOG, RECIPE_FILE
from arrn.experiments.job import Job
from arrn.experiments.judging import judge, load_network
from arrn.experiments.locking import locked
from arrn.experiments.results import Result, write_result
from arrn.experiments.run import run_training
from arrn.experiments.sets import resolutions_for
from arrn.experiments.settings import read_run_file
from arrn.experiments.splits import open_split
from arrn.models import create_model
from arrn.models.entry import signal_axes
from arrn.models.fixed import ResampledNetwork
from arrn.nn.arrn import ARRN
from arrn.nn.config import config_of
from arrn.signal.grid import grid_of
from arrn.signal.resample import resample
from arrn.training import Watcher, read_recipe
from arrn.training.log import read_log
from arrn.training.step import order_memory

__all__ = ["carry_out", "measure_times"]

TIMED_BATCH = 256
_COMPARED = 256  # images whose logits are compared with and without adaptation


def carry_out(job: Job, watcher: Watcher | None = None, say: Callable[[str], None] = lambda text: None) -> Path:
    """Trains, or goes on training, then evaluates; returns the file of the result.

    Raises:
        ArrnError: for input that cannot be right.
        RunError: for a run that had to stop.
    """
    with locked(job.output):
        return _carry_out(job, watcher, say)


def _carry_out(job: Job, watcher: Watcher | None, say: Callable[[str], None]) -> Path:
    run_training(job.settings, job.folder, job.machine, resume=job.folder.exists(), watcher=watcher, say=say)
    examined = open_split(job.settings, job.split)
    resolutions = resolutions_for(max(map(max, examined.sizes)), job.dataset)
    say(f"evaluating at {', '.join(map(str, resolutions))}")
    report = judge(
        job.folder,
        resolutions,
        data=job.settings.data,
        split=job.split,
        device=job.machine.device,
        stream=job.machine.stream,
        workers=job.machine.workers,
    )
    device = pick_device(job.machine.device)
    model, _, normalisation = load_network(job.folder, device)
    model.eval()
    compared = min(affordable_batch(_COMPARED, examined.sizes), len(examined.source))
    first = [examined.source.read(n)[None] for n in range(compared)]
    images = _gather(first, normalisation, device)
    discrepancies = measure_discrepancies(model, images, resolutions)
    return write_result(_result(job, model, report, resolutions, discrepancies), job.results)


def _gather(images: list[torch.Tensor], normalisation: Normalisation, device: torch.device) -> torch.Tensor:
    """Images in one tensor: those of differing sizes are brought to the first one's."""
    size = grid_of(images[0])
    return torch.cat([resample(normalisation(image.to(device)), size) for image in images])


def _result(
    job: Job, model: nn.Module, report: Report, resolutions: tuple[int, ...], discrepancies: list[dict[str, Any]]
) -> Result:
    config = config_of(model)
    kernel = model.kernel.name if isinstance(model, ARRN | ResampledNetwork) else None
    p = config["options"].get("dropout") if isinstance(model, ARRN) else None
    return Result(
        name=job.name,
        experiments=job.experiments,
        model=config,
        kernel=kernel,
        dropout=sum(p) / len(p) if isinstance(p, list) else p,
        dataset=job.dataset,
        split=job.split,
        seed=job.settings.seed,
        recipe=dataclasses.asdict(read_recipe(job.folder / RECIPE_FILE)),
        parameters=count_parameter_range(model),
        multiply_adds=list_multiply_adds(model, resolutions),
        report=report,
        training_seconds=round(sum(entry["seconds"] for entry in read_log(job.folder / LOG)), 3),
        provenance=read_run_file(job.folder)["provenance"],
        command=job.command,
        discrepancies=discrepancies,
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
    order_memory(model.to(device), signal_axes(model) or 2)
    resolutions = [entry["resolution"] for entry in result.report.results]
    resolutions = list(dict.fromkeys(resolution for resolution in resolutions if resolution is not None))
    samples = result.report.results[0]["total"]
    often = repeats or (3 if device.type == "cpu" else 10)
    timings = measure_inference(model, resolutions, samples, TIMED_BATCH, often)
    return write_result(dataclasses.replace(result, timings=timings), job.results)
