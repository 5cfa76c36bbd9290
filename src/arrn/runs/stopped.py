"""What a run has so far: its network from a checkpoint, to be evaluated as it is, or saved as the run's end."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import nn

from arrn.errors import ArrnError, RunError
from arrn.model_folder import CONFIG, WEIGHTS, write_model
from arrn.runs.run_folder import CHECKPOINTS, FINISHED_EARLY, is_finished, occupied
from arrn.runs.settings import RUN_FILE, note_in_run_file, read_run_file, settings_from
from arrn.saving import load, save
from arrn.training import BestEpoch, Checkpoint, Checkpoints, result_tensors
from arrn.training.best import best_name

NETWORK = "network"
"""Where `run.json` says what the network is, so that a checkpoint can be made one without the data."""

KEPT_EPOCH = "kept_epoch"
"""Where `run.json` says which epoch was the best, for a run that keeps that."""


@dataclass(frozen=True)
class Stopped:
    """The network of a run that has not come to its end.

    Attributes:
        model: with its metadata, in evaluation mode, in float32, on the CPU.
        checkpoint: the name of the file that it is from.
        epoch: epochs done then.
        step: steps done in the epoch that follows.
        epochs: that the run is of.
        facts: of a best epoch, its score; else of the checkpoint.
    """

    model: nn.Module
    checkpoint: str
    epoch: int
    step: int
    epochs: int
    facts: Mapping[str, Any]

    def __str__(self) -> str:
        inside = f" and {self.step} step{'s' * (self.step > 1)}" if self.step else ""
        return f"{self.checkpoint}, after {self.epoch} of {self.epochs} epochs{inside}"


def read_stopped(run: Path) -> Stopped:
    """The network of a stopped run: of its best epoch so far if it keeps that, else of its latest checkpoint.

    Reads only; whatever is at work in the folder may go on.

    Raises:
        ArrnError: for a folder without a run, a finished run, one that has no checkpoint yet, and damaged files.
    """
    document = read_run_file(run)
    if not document:
        raise ArrnError(f"{run} holds no run: there is no {RUN_FILE}")
    if is_finished(run):
        raise ArrnError(f"the run in {run} is finished: its network is in {WEIGHTS}, not in a checkpoint")
    settings = settings_from(document.get("settings"), str(run / RUN_FILE))
    found, name = _weights_so_far(run, settings.keep)
    network = document.get(NETWORK)
    if not isinstance(network, dict):
        raise ArrnError(
            f"{run / RUN_FILE} does not describe the network, since an earlier version of arrn began the run: go on "
            f"with `arrn train --resume --out {run}`, which adds the description"
        )
    # As a saved network, which is checked as those of strangers are.
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder), safetensors.torch.save(result_tensors(found)), network)
        try:
            model = load(folder)
        except ArrnError as error:
            told = str(error).replace(f"{Path(folder) / CONFIG}", f"{run / RUN_FILE}").replace(folder, str(run))
            raise ArrnError(told.replace(WEIGHTS, f"{CHECKPOINTS}/{name}")) from None
    return Stopped(model, name, found.epoch, found.step, settings.recipe.epochs, found.facts)


def _weights_so_far(run: Path, keep: str) -> tuple[Checkpoint, str]:
    if keep == "best":
        best = BestEpoch.found_in(run / CHECKPOINTS)
        if best is not None:
            return best, best_name(best.epoch)
    latest = Checkpoints(run / CHECKPOINTS).read_latest()
    if latest is None:
        raise ArrnError(f"the run in {run} has no checkpoint yet: go on with `arrn train --resume --out {run}`")
    return latest, latest.file_name


def finish_run(run: Path) -> Stopped:
    """Ends a stopped run early: what `read_stopped` finds is saved as its network, and `run.json` says so.

    Killed anywhere, the run is stopped as before, or finished.

    Args:
        run: the folder; no other process may be at work in it.

    Raises:
        ArrnError: as `read_stopped` does.
        RunError: when another process is at work in the folder, or it cannot be written.
    """
    read_run_file(run) or read_stopped(run)  # no folder is made for a run that there is not
    with occupied(run):
        stopped = read_stopped(run)
        mark = {field: getattr(stopped, field) for field in ("checkpoint", "epoch", "step", "epochs")}
        try:
            note_in_run_file(run, {FINISHED_EARLY: mark})  # without a network it means nothing, and a run drops it
            save(stopped.model, run)
        except OSError as error:
            raise RunError(f"cannot write {run}: {error.strerror or error}") from error
        except ArrnError as error:
            if isinstance(error.__cause__, OSError):
                raise RunError(f"{error}; the checkpoints are kept") from error
            raise
    return stopped


def ended_in_words(run: Path) -> str:
    """How a finished run ended, if not at its last epoch; nothing for others.

    Raises:
        ArrnError: for a file that does not describe a run.
    """
    early, kept = (read_run_file(run).get(name) for name in (FINISHED_EARLY, KEPT_EPOCH))
    if isinstance(early, dict):
        epochs = f"{early.get('epoch')} of {early.get('epochs')} epochs"
        return f"the run was finished early, from {early.get('checkpoint')}, after {epochs}"
    if isinstance(kept, dict):
        return f"the weights are those of epoch {kept.get('epoch')}, the best on the validation samples"
    return ""


def kept_in_words(kept: Checkpoint, epochs: int) -> str:
    """Which epoch a run keeps, in a line."""
    metric = str(kept.facts["metric"]).replace("_", " ")
    return f"kept the weights of epoch {kept.epoch} of {epochs}, the best: {metric} {kept.facts['score']:.1%}"
