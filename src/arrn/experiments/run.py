"""A training run from its settings to a saved network: started, resumed, finished."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from arrn.data import Augmentation, Batches, Examined, Normalisation, Placement, measure_statistics, open_batches
from arrn.errors import ArrnError, RunError
from arrn.evaluation import evaluate, settings_for
from arrn.experiments.building import build_network
from arrn.experiments.device import make_deterministic, pick_device
from arrn.experiments.settings import RUN_FILE, RunSettings, read_settings, write_settings
from arrn.experiments.splits import open_run_data
from arrn.models.entry import entry_grid, entry_kernel
from arrn.provenance import provenance
from arrn.saving import CONFIG, WEIGHTS, Metadata, save, write_atomically
from arrn.training import (
    Checkpoints,
    Log,
    TrainingStep,
    Watcher,
    resume_from,
    stop_on_signals,
    train,
)
from arrn.training.step import memory_format_for

__all__ = ["Machine", "is_finished", "run_training"]

Say = Callable[[str], None]


@dataclass(frozen=True)
class Machine:
    """How a run is carried out; its result does not depend on it, but for rounding.

    Attributes:
        device: "auto", "cpu", "cuda" or "mps".
        stream: read samples from disk (True), keep them in memory (False), or as memory allows (None).
        workers: processes that read from disk.
        compiled: whether the network goes through `torch.compile`.
        deterministic: the same bits each time on a GPU too.
        checkpoint_every: epochs between checkpoints.
        tensorboard: also log for TensorBoard.
    """

    device: str = "auto"
    stream: bool | None = None
    workers: int = 2
    compiled: bool = False
    deterministic: bool = False
    checkpoint_every: float = 1.0
    tensorboard: bool = False


def is_finished(out: Path) -> bool:
    """Whether the run in `out` has come to its end."""
    return (out / WEIGHTS).exists() and (out / CONFIG).exists()


def run_training(
    settings: RunSettings,
    out: Path,
    machine: Machine | None = None,
    resume: bool = False,
    watcher: Watcher | None = None,
    say: Say = lambda text: None,
) -> None:
    """Trains a network and leaves it in `out`, with its recipe, its log and its last checkpoints.

    Args:
        settings: what to train, on what, how.
        out: the run's folder: new or empty, unless `resume`.
        machine: device and the like.
        resume: go on from the latest checkpoint; a finished run is left as it is.
        watcher: told of the progress.
        say: told, in a line, of what a user should know.

    Raises:
        ArrnError: for input that cannot be right.
        RunError: for a run that had to stop.
    """
    machine = machine or Machine()
    device = pick_device(machine.device)
    if machine.deterministic:
        make_deterministic()
    if not _prepare_folder(settings, out, resume, say):
        return
    data = open_run_data(settings)
    if data.skipped:
        say(f"skipped {data.skipped} bad samples")
    model, recipe = build_network(settings, data.train, say)
    model.to(device).to(memory_format=memory_format_for(len(data.train.sizes[0])))

    def batches_of(examined: Examined, placement: Placement) -> Batches:
        return open_batches(
            examined, placement, recipe.batch_size, device, settings.seed, machine.stream, machine.workers
        )

    placement = Placement.by(lambda size: entry_grid(model, size), data.train.sizes, entry_kernel(model))
    batches = batches_of(data.train, placement)
    mean, std = data.dataset.mean, data.dataset.std
    if mean is None or std is None:
        mean, std = measure_statistics(batches)
    normalisation = Normalisation(mean, std).to(device)
    validate = None
    if data.validation is not None:
        validate = _validation(batches_of(data.validation, Placement.unchanged(data.validation.sizes)), normalisation)
    _set_up(device, one_shape=len(batches.grids) == 1 and not machine.deterministic)
    steps = recipe.epochs * len(batches)
    augmentation = Augmentation(normalisation, recipe.flip, recipe.crop_padding)
    step = TrainingStep(model, augmentation, recipe, steps, settings.seed, machine.compiled)

    checkpoints = Checkpoints(out / "checkpoints")
    start = checkpoints.read_latest() if resume else None
    if start is not None:
        resume_from(step, start)
        say(f"going on from {start.file_name}")
    elif resume:
        say(f"there is no checkpoint in {out} yet: starting afresh")
    facts = {
        "samples": len(data.train.source),
        "skipped": data.skipped,
        "steps": steps,
        "device": str(device),
        "provenance": provenance(),
    }
    try:
        write_settings(settings, out, facts)
        write_atomically(out / "recipe.toml", recipe.to_toml().encode())
    except OSError as error:
        raise RunError(f"cannot write {out}: {error.strerror or error}") from error
    board = out / "tensorboard" if machine.tensorboard else None
    with Log(out / "log.jsonl", 0 if start is None else start.epoch, board) as log, stop_on_signals() as stop:
        train(
            step,
            batches,
            recipe.epochs,
            checkpoints,
            log,
            stop,
            start,
            machine.checkpoint_every,
            validate,
            watcher,
        )
        save(model, out, Metadata(mean, std, "perfect", data.dataset.class_names))


def _prepare_folder(settings: RunSettings, out: Path, resume: bool, say: Say) -> bool:
    """Makes or checks the run's folder; False where there is nothing left to do."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        there = [path.name for path in out.iterdir() if not path.name.startswith(".")]
    except OSError as error:
        raise ArrnError(f"cannot use {out}: {error.strerror or error}") from error
    if not there:
        return True
    if not resume:
        raise ArrnError(f"{out} is not empty; --resume goes on with the run that is in it, another --out starts anew")
    saved = read_settings(out)
    if saved is None:
        raise ArrnError(f"{out} holds no run ({RUN_FILE} is missing) but other files, such as {sorted(there)[0]!r}")
    differences = saved.differences(settings)
    if differences:
        raise ArrnError(f"the run in {out} was started otherwise: {'; '.join(differences)}")
    if is_finished(out):
        say(f"the run in {out} is finished")
        return False
    return True


def _set_up(device: torch.device, one_shape: bool) -> None:
    if device.type == "cuda":
        # Trying out algorithms pays when every batch has the same shape.
        torch.backends.cudnn.benchmark = one_shape
        torch.set_float32_matmul_precision("high")


def _validation(batches: Batches, normalisation: Normalisation) -> Callable[[nn.Module], Mapping[str, float]]:
    """What is called after each epoch: the accuracy on what was held out, as it comes."""

    def validate(model: nn.Module) -> Mapping[str, float]:
        settings = settings_for(model, [None], policies=["exact"], adapt=[True])
        (answers,) = evaluate(model, batches, settings, normalisation)
        return {"validation_accuracy": answers.accuracy}

    return validate
