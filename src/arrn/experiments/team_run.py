"""What a run of several processes needs beside the run itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from arrn.data import Batches
from arrn.data.epochs import plan_epoch
from arrn.errors import ArrnError
from arrn.experiments.machine import Machine
from arrn.teamwork import Team
from arrn.training import Checkpoint

__all__ = ["check_same_start", "in_turn", "least_share", "share_norms"]


@contextmanager
def in_turn(team: Team) -> Iterator[None]:
    """The leader first, then all others at once."""
    if not team.leads:
        team.wait()
    yield
    if team.leads:
        team.wait()


def share_norms(model: nn.Module, machine: Machine, team: Team, device: torch.device) -> nn.Module:
    """The network, with batch norms over all processes if the machine is to have them.

    Raises:
        ArrnError: on a device for which PyTorch has none.
    """
    if not machine.sync_batch_norm or team.size == 1:
        return model
    if device.type != "cuda":
        raise ArrnError(
            f"synchronised batch norms need GPUs, PyTorch has none for the {device.type}: leave --sync-batch-norm out"
        )
    shared: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    return shared


def least_share(batches: Batches, team: Team) -> int:
    """The fewest samples that a process gets of a batch.

    Raises:
        ArrnError: where some process would get none.
    """
    least = min(len(planned.places) for planned in plan_epoch(batches.counts, batches.batch_size, 0, 0))
    if least < team.size:
        raise ArrnError(
            f"a batch of {least} samples cannot be shared by {team.size} processes: take a larger batch_size"
        )
    return least // team.size


def check_same_start(start: Checkpoint | None, team: Team, out: Path) -> None:
    """Refuses processes that do not see the same checkpoints."""
    place = (0, 0) if start is None else (start.epoch, start.step)
    seen = [(team.most(number), -team.most(-number)) for number in place]
    if any(most != least for most, least in seen):
        raise ArrnError(
            f"the processes see different checkpoints (epochs {seen[0][1]} and {seen[0][0]}): {out} must be a folder "
            "that all of them share"
        )
