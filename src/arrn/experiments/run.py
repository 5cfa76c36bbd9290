"""A training run from its settings to a saved network: started, resumed, finished."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import nn

from arrn.data import Augmentation, Batches, Examined, Normalisation, Placement, measure_statistics, open_batches
from arrn.errors import ArrnError, RunError
from arrn.evaluation import affordable_batch, evaluate, settings_for
from arrn.experiments.building import build_network
from arrn.experiments.device import make_deterministic, pick_device, tune_device
from arrn.experiments.folder import CHECKPOINTS, LOG, prepare_folder
from arrn.experiments.machine import Machine
from arrn.experiments.settings import RunSettings, write_settings
from arrn.experiments.splits import open_run_data
from arrn.experiments.team_run import check_same_start, in_turn, least_share, share_norms
from arrn.models.entry import entry_grid, entry_kernel
from arrn.nn.arrn import ARRN
from arrn.provenance import provenance
from arrn.saving import Metadata, save
from arrn.teamwork import Team, join_team, team_device
from arrn.training import Checkpoints, Log, Recipe, TrainingStep, Watcher, resume_from, stop_on_signals, train
from arrn.training.log import check_tensorboard
from arrn.training.step import order_memory
from arrn.writing import write_atomically

__all__ = ["run_training"]

Say = Callable[[str], None]


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
    device = team_device(pick_device(machine.device))
    with join_team(device) as team:
        if team.leads:
            _run(settings, out, machine, resume, watcher, say, device, team)
        else:  # the leader speaks and shows for all
            _run(settings, out, machine, resume, None, lambda text: None, device, team)


def _run(
    settings: RunSettings,
    out: Path,
    machine: Machine,
    resume: bool,
    watcher: Watcher | None,
    say: Say,
    device: torch.device,
    team: Team,
) -> None:
    if machine.tensorboard:
        check_tensorboard()
    finished = team.leads and not prepare_folder(settings, out, resume, say)
    if team.most(int(finished)):
        return
    if machine.deterministic:
        make_deterministic()
    with in_turn(team):  # the first one downloads what is missing
        data = open_run_data(settings)
    if data.skipped:
        say(f"skipped {data.skipped} bad samples")
    for remark in data.remarks:
        say(remark)
    model, recipe = build_network(settings, data.train, say)
    form = data.train.source.form
    order_memory(share_norms(model, machine, team, device).to(device), form.ndim)
    with ExitStack() as opened:

        def batches_of(examined: Examined, placement: Placement, batch_size: int) -> Batches:
            return opened.enter_context(
                open_batches(
                    examined,
                    placement,
                    batch_size,
                    device,
                    settings.seed,
                    machine.stream,
                    machine.workers,
                    team=team,
                )
            )

        placement = Placement.by(lambda size: entry_grid(model, size), data.train.sizes, entry_kernel(model))
        batches = batches_of(data.train, placement, recipe.batch_size)
        least = least_share(batches, team)
        mean, std = data.dataset.mean, data.dataset.std
        if mean is None or std is None:
            mean, std = measure_statistics(batches)
        normalisation = Normalisation(mean, std).to(device)
        validate = None
        if data.validation is not None:
            sizes = data.validation.sizes
            few = affordable_batch(recipe.batch_size, sizes)
            validate = _validation(batches_of(data.validation, Placement.unchanged(sizes), few), normalisation)
        tune_device(device, one_shape=len(batches.grids) == 1 and not machine.deterministic)
        augmentation = Augmentation(normalisation, recipe.flip, recipe.crop_padding, recipe.trivial_augment)
        steps = recipe.epochs * len(batches)
        step = TrainingStep(
            model,
            augmentation,
            recipe,
            steps,
            settings.seed,
            machine.compiled,
            captured=machine.captured,
            team=team if team.size > 1 else None,
            least_share=least,
        )
        checkpoints = Checkpoints(out / CHECKPOINTS)
        start = checkpoints.read_latest() if resume else None
        check_same_start(start, team, out)
        if start is not None:
            resume_from(step, start)
            say(f"going on from {start.file_name}")
        elif resume:
            say(f"there is no checkpoint in {out} yet: starting afresh")
        facts: dict[str, object] = {"samples": len(data.train.source), "skipped": data.skipped, "device": str(device)}
        if team.leads:
            _write_down(settings, recipe, out, facts | ({"processes": team.size} if team.size > 1 else {}))
        done = 0 if start is None else start.epoch
        board = out / "tensorboard" if machine.tensorboard else None
        with Log(out / LOG, done, board, writes=team.leads) as log, stop_on_signals() as stop:
            every = machine.checkpoint_every
            train(step, batches, recipe.epochs, checkpoints, log, stop, start, every, validate, watcher)
            window = settings.window if form.ndim == 1 else None
            if team.leads:
                _save(model, out, Metadata(mean, std, "perfect", data.dataset.class_names, window))


def _write_down(settings: RunSettings, recipe: Recipe, out: Path, facts: Mapping[str, object]) -> None:
    """The settings and the resolved recipe; from then on the folder is a run's."""
    try:
        write_settings(settings, out, {**facts, "provenance": provenance()})
        write_atomically(out / "recipe.toml", recipe.to_toml().encode())
    except OSError as error:
        raise RunError(f"cannot write {out}: {error.strerror or error}") from error


def _save(model: nn.Module, out: Path, metadata: Metadata) -> None:
    try:
        save(model, out, metadata)
    except ArrnError as error:  # the input was good: what fails now is the disk
        raise RunError(f"{error}; the last checkpoint is kept: make room and go on with --resume") from error


def _validation(batches: Batches, normalisation: Normalisation) -> Callable[[nn.Module], Mapping[str, float]]:
    """What is called after each epoch: the accuracy on what was held out, as it comes."""

    def validate(model: nn.Module) -> Mapping[str, float]:
        policies = [model.policy] if isinstance(model, ARRN) else []
        settings = settings_for(model, [None], policies, adapt=[True])
        (answers,) = evaluate(model, batches, settings, normalisation)
        return {"validation_accuracy": answers.accuracy}

    return validate
