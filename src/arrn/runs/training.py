"""A training run from its settings to a saved network: started, resumed, finished."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import torch
from torch import nn

from arrn.data import BadSample, Batches, StoreAwayError, skipped_in_words
from arrn.errors import ArrnError, RunError, plain
from arrn.metadata import Metadata
from arrn.models import registry
from arrn.models.limits import built_within, seems_large
from arrn.models.rebuilding import config_for
from arrn.provenance import provenance
from arrn.runs.building import check_names, check_values
from arrn.runs.device import make_deterministic, pick_device
from arrn.runs.preparing import prepare
from arrn.runs.run_folder import (
    BOARD,
    CHECKPOINTS,
    LOG,
    RECIPE_FILE,
    SKIPPED,
    cleared_on_bad_input,
    occupied,
    prepare_folder,
)
from arrn.runs.settings import RUN_FILE, Machine, RunSettings, note_in_run_file, read_settings, write_run_file
from arrn.runs.splits import (
    ORDER,
    TRAINED_ON,
    RunData,
    TrainedOn,
    begun_in_order,
    check_trained_on,
    describe_samples,
    open_run_data,
)
from arrn.runs.stopped import KEPT_EPOCH, NETWORK, kept_in_words
from arrn.saving import describe, save
from arrn.teamwork import Team, join_team, team_device
from arrn.training import (
    BestEpoch,
    Checkpoint,
    Checkpoints,
    Log,
    Recipe,
    Watcher,
    put_weights,
    resume_from,
    stop_on_signals,
    train,
)
from arrn.training.log import check_tensorboard
from arrn.writing import write_atomically


def run_training(
    settings: RunSettings,
    out: Path,
    machine: Machine | None = None,
    resume: bool = False,
    watcher: Watcher | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Trains a network and leaves it in `out`, with its recipe, its log and its last checkpoints.

    Args:
        settings: what to train, on what, how.
        out: the run's folder: new or empty, unless `resume`; no other process may be at work in it.
        machine: device and the like.
        resume: go on from the latest checkpoint; a finished run is left as it is.
        watcher: told of the progress.
        say: told, in a line, of what a user should know.

    Raises:
        ArrnError: for a wrong argument or a wrong file.
        RunError: for a run that had to stop.
    """
    machine = machine or Machine()
    device = team_device(pick_device(machine.device))
    if machine.tensorboard:
        check_tensorboard()
    with join_team(device) as team, ExitStack() as opened:
        if team.leads:
            opened.enter_context(occupied(out))
        else:  # the leader speaks and shows for all
            watcher, say = None, lambda text: None
        finished = team.leads and not prepare_folder(settings, out, resume, say)
        if team.most(int(finished)):
            return
        check_names(settings)  # a run that is resumed with another model hears of that first
        if not resume:
            check_values(settings)
        if machine.deterministic:
            make_deterministic()
        if team.leads and not (resume and (out / RUN_FILE).exists()):
            _record(settings, out)
            opened.enter_context(cleared_on_bad_input(out))
        checkpoints = Checkpoints(out / CHECKPOINTS)
        opened.enter_context(_naming_what_is_kept(checkpoints))
        with team.leader_first():  # who downloads what is missing
            tell = None if watcher is None else partial(watcher.samples_seen, "looking")
            data = open_run_data(settings, tell, machine.max_pixels)
        if team.leads and data.bad:
            _list_skipped(data.bad, out / SKIPPED)
        for line in _in_words(data, out):
            say(line)
        start = checkpoints.read_latest() if resume else None
        if resume and (begun := read_settings(out)) is not None:  # with what was chosen as it began
            settings = dataclasses.replace(begun, data=settings.data)
        _check_same_start(start, team, out)
        samples = describe_samples(data.whole) if team.leads else None
        if start is not None and samples is not None:
            check_trained_on(out, samples)
        _check_size(settings, start, out)
        run = prepare(
            settings,
            data,
            machine=machine,
            device=device,
            team=team,
            opened=opened,
            order=begun_in_order(out, start is not None),
            say=say,
            watcher=watcher,
            fresh=start is None,
        )
        if team.leads and run.bad:
            _list_skipped([*data.bad, *run.bad], out / SKIPPED)
            say(skipped_in_words(run.bad, str(out / SKIPPED)))
        if start is not None:
            resume_from(run.step, start)
            say(f"going on from {start.file_name}")
        elif resume:
            say(f"there is no checkpoint in {out} yet: starting afresh")
        if samples is not None:
            facts = _facts(data, samples, device, team, run.batches)
            network = describe(run.step.model, config_for(run.step.model), run.metadata)
            _record(run.settings, out, facts | {NETWORK: network}, run.recipe)
        done = 0 if start is None else start.epoch
        best = BestEpoch(out / CHECKPOINTS, done) if settings.keep == "best" and team.leads else None
        board = out / BOARD if machine.tensorboard else None
        with Log(out / LOG, done, board, writes=team.leads) as log, stop_on_signals() as stop:
            train(
                run.step,
                run.batches,
                run.recipe.epochs,
                checkpoints=checkpoints,
                log=log,
                stop=stop,
                start=start,
                checkpoint_every=machine.checkpoint_every,
                validate=run.validate,
                best=best,
                watcher=watcher,
            )
            if team.leads:
                kept = None if best is None else best.read()
                if kept is not None:
                    put_weights(run.step.result, kept)
                    note_in_run_file(out, {KEPT_EPOCH: {"epoch": kept.epoch, **kept.facts}})
                    say(kept_in_words(kept, run.recipe.epochs))
                _save(run.step.result, out, run.metadata)


def _record(
    settings: RunSettings, out: Path, facts: Mapping[str, object] | None = None, recipe: Recipe | None = None
) -> None:
    """Writes `run.json`, and the resolved recipe once it is known; a run does this twice.

    The first time, before samples are looked at, which takes long: from then on the folder is the run's, and --resume
    needs no other flags. The second time, when the network is built, with the facts that are only known then.
    """
    try:
        write_run_file(settings, out, facts or {})
        if recipe is not None:
            write_atomically(out / RECIPE_FILE, recipe.to_toml().encode())
    except OSError as error:
        raise RunError(f"cannot write {out}: {error.strerror or error}") from error


def _list_skipped(bad: Sequence[BadSample], file: Path) -> None:
    try:
        write_atomically(file, "".join(f"{plain(error)}\n" for error in bad).encode())
    except OSError as error:
        raise RunError(f"cannot write {file}: {error.strerror or error}") from error


def _facts(data: RunData, samples: TrainedOn, device: torch.device, team: Team, batches: Batches) -> dict[str, object]:
    """What `run.json` tells beside the settings."""
    facts: dict[str, object] = {"samples": len(data.train.source), "skipped": len(data.bad), "device": str(device)}
    facts |= {"processes": team.size} if team.size > 1 else {}
    facts |= {ORDER: batches.order if isinstance(batches.order, str) else dataclasses.asdict(batches.order)}
    facts |= {"splits": data.splits, TRAINED_ON: dataclasses.asdict(samples)}
    return facts | {"provenance": provenance()}


def _in_words(data: RunData, out: Path) -> list[str]:
    """What is trained on, a line each; a split folder that was taken for a class shows here."""
    names, few = data.dataset.class_names, 10
    more = f" and {len(names) - few} more" if len(names) > few else ""
    kind = data.whole.form.words
    lines = [f"{len(data.train.sizes):,} {kind} of {len(names)} classes: {', '.join(names[:few])}{more}"]
    skipped = [skipped_in_words(data.bad, str(out / SKIPPED))] if data.bad else []
    return [*lines, *skipped, *data.remarks]


def _check_size(settings: RunSettings, start: Checkpoint | None, out: Path) -> None:
    """Refuses a network with many more parameters than the checkpoint has, before anything is built.

    `run.json` may be a stranger's, and ask for more than the memory holds.
    """
    if start is None or not registry.is_builtin(settings.model) or not seems_large(settings.options):
        return
    elements = sum(tensor.numel() for tensor in start.tensors.values())
    try:
        with torch.device("meta"), built_within(elements):  # where parameters take no memory
            registry.create_model(settings.model, **settings.options)
    except ArrnError as error:
        raise ArrnError(f"{out / RUN_FILE}: {error}") from error
    except (TypeError, ValueError, RuntimeError):  # what options mean nothing is told when the network is built
        return


def _check_same_start(start: Checkpoint | None, team: Team, out: Path) -> None:
    """Refuses processes that do not see the same checkpoints."""
    place = (0, 0) if start is None else (start.epoch, start.step)
    seen = [(team.most(number), -team.most(-number)) for number in place]
    if any(most != least for most, least in seen):
        raise ArrnError(
            f"the processes see different checkpoints (epochs {seen[0][1]} and {seen[0][0]}): {out} must be a folder "
            "that all of them share"
        )


@contextmanager
def _naming_what_is_kept(checkpoints: Checkpoints) -> Iterator[None]:
    """Within it, the error of a store that went away says that there is a checkpoint, where there is one."""
    try:
        yield
    except StoreAwayError as error:
        if not checkpoints.epochs():
            raise
        raise StoreAwayError(f"{error}; the last checkpoint is kept: go on with --resume") from error


def _save(model: nn.Module, out: Path, metadata: Metadata) -> None:
    try:
        save(model, out, metadata)
    except ArrnError as error:  # the input was good: what fails now is the disk, or the training
        hint = ": make room and go on with --resume" if isinstance(error.__cause__, OSError) else ""
        raise RunError(f"{error}; the last checkpoint is kept{hint}") from error
