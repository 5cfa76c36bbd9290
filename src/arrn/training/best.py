"""The weights of a run's best epoch so far, by its accuracy on what was held out, beside its checkpoints."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from arrn.errors import ArrnError, RunError, plain
from arrn.training.checkpoints import Checkpoint, read_checkpoint, result_tensors, write_checkpoint

METRICS = ("validation_balanced_accuracy", "validation_accuracy")
"""What an epoch is judged by: the first of these that its log entry has."""

_NAME = re.compile(r"best-(\d{4,9})\.safetensors", re.ASCII)

logger = logging.getLogger(__name__)


class BestEpoch:
    """Keeps the weights of the best epoch, and of those that would be the best if the run went back to a checkpoint.

    So a run that was killed anywhere, and trains some epochs again, ends with the epoch that it would have kept.

    Args:
        folder: of the run's checkpoints.
        epoch: how many epochs are done; what is there of later ones, which are trained again, is removed.
    """

    def __init__(self, folder: Path, epoch: int) -> None:
        self.folder = folder
        self._scores: dict[int, float] = {}
        for path in _those_in(folder):
            number, found = _epoch_of(path), None
            if number <= epoch:
                found = _read(path)
            if found is None:
                path.unlink(missing_ok=True)
            else:
                self._scores[number] = _score(found)

    @classmethod
    def found_in(cls, folder: Path) -> Checkpoint | None:
        """The best epoch so far of a run that may be going on: reads only."""
        return _best_of(_those_in(folder))

    def offer(self, entry: Mapping[str, Any], network: nn.Module) -> None:
        """Keeps the weights after an epoch, if none before was better; of equally good ones the latest is kept.

        Raises:
            RunError: when they cannot be written.
        """
        metric = next(name for name in METRICS if name in entry)
        epoch, score = entry["epoch"], entry[metric]
        if score < max(self._scores.values(), default=-math.inf):
            return
        tensors = {f"model.{name}": tensor for name, tensor in network.state_dict().items()}
        path = self.folder / best_name(epoch)
        try:
            write_checkpoint(path, Checkpoint(epoch, 0, tensors, {"metric": metric, "score": score}))
        except OSError as error:
            raise RunError(
                f"cannot write {path}: {error.strerror or error}; make room and go on with --resume"
            ) from error
        self._scores[epoch] = score

    def prune(self, checkpoints: Sequence[int]) -> None:
        """Removes what would not be the best even if the run went back to one of its checkpoints, by their epochs."""
        kept = {self._best_until(epoch) for epoch in (*checkpoints, max(self._scores, default=0))}
        for epoch in [epoch for epoch in self._scores if epoch not in kept]:
            (self.folder / best_name(epoch)).unlink(missing_ok=True)
            del self._scores[epoch]

    def read(self) -> Checkpoint | None:
        """The best epoch's weights and score, None where there are none; instead of a damaged file the next best."""
        return _best_of([self.folder / best_name(epoch) for epoch in self._scores])

    def _best_until(self, last: int) -> int | None:
        until = [epoch for epoch in self._scores if epoch <= last]
        return max(until, key=lambda epoch: (self._scores[epoch], epoch), default=None)


def best_name(epoch: int) -> str:
    """The file of an epoch's weights."""
    return f"best-{epoch:04d}.safetensors"


def _those_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("best-*") if _NAME.fullmatch(path.name) and path.is_file())


def _best_of(paths: Sequence[Path]) -> Checkpoint | None:
    found = [checkpoint for path in paths if (checkpoint := _read(path)) is not None]
    return max(found, key=lambda checkpoint: (_score(checkpoint), checkpoint.epoch), default=None)


def _epoch_of(path: Path) -> int:
    name = _NAME.fullmatch(path.name)
    assert name is not None
    return int(name[1])


def _score(checkpoint: Checkpoint) -> float:
    score = checkpoint.facts.get("score")
    return float(score) if isinstance(score, int | float) and math.isfinite(score) else -math.inf


def _read(path: Path) -> Checkpoint | None:
    try:
        found = read_checkpoint(path)
        if found.epoch != _epoch_of(path):
            raise ArrnError(f"{path} is misnamed: it holds epoch {found.epoch}")
    except ArrnError as error:
        logger.warning("%s; it is left out", plain(error))
        return None
    return found


def put_weights(network: nn.Module, checkpoint: Checkpoint) -> None:
    """Gives a network the weights of a checkpoint.

    Raises:
        ArrnError: for those of another network.
    """
    tensors: Mapping[str, torch.Tensor] = result_tensors(checkpoint)
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        found = " ".join(str(error).split())
        raise ArrnError(f"the weights of the best epoch do not belong to this network: {found}") from None
