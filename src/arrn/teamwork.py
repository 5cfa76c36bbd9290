"""Several processes at one task: who is who, who does what share, and how they agree.

`torchrun` starts the processes and tells each its place in environment variables; `join_team` reads them. A process
by itself is a team of one, for which everything here does nothing.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

import torch
import torch.distributed as dist

from arrn.errors import ArrnError, RunError

_PATIENCE = timedelta(minutes=30)  # others may be downloading, or evaluating a larger share


@dataclass(frozen=True)
class Team:
    """The processes of a job, seen by one of them.

    Attributes:
        rank: this process, from 0.
        size: how many there are.

    >>> Team(rank=1, size=3).share(torch.arange(8)).tolist()
    [1, 4, 7]
    """

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process speaks and writes for all."""
        return self.rank == 0

    def share(self, places: torch.Tensor) -> torch.Tensor:
        """This process's part of `places`; together the parts are the whole, and differ in length by one at most."""
        return places if self.size == 1 else places[self.rank :: self.size]

    def wait(self) -> None:
        """Returns when all are here."""
        if self.size > 1:
            dist.barrier(_words())

    @contextmanager
    def leader_first(self) -> Iterator[None]:
        """The leader does what is within it first, then all others at once."""
        if not self.leads:
            self.wait()
        yield
        if self.leads:
            self.wait()

    def most(self, number: int) -> int:
        """The largest of the numbers that the processes call this with."""
        if self.size == 1:
            return number
        told = torch.tensor(number)
        dist.all_reduce(told, dist.ReduceOp.MAX, _words())
        return int(told)

    def add_up(self, numbers: list[float]) -> list[float]:
        """The sum of each number over the processes."""
        if self.size == 1:
            return numbers
        told = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(told, dist.ReduceOp.SUM, _words())
        return told.tolist()

    def gather(self, part: torch.Tensor) -> torch.Tensor:
        """The parts of all, one after another along the first axis, on the CPU; parts may differ in length."""
        if self.size == 1:
            return part.cpu()
        lengths = [self.most(len(part) if rank == self.rank else 0) for rank in range(self.size)]
        padded = torch.zeros((max(lengths), *part.shape[1:]), dtype=part.dtype)
        padded[: len(part)] = part.cpu()
        parts = [torch.empty_like(padded) for _ in lengths]
        dist.all_gather(parts, padded, _words())
        return torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])


_channel: dist.ProcessGroup | None = None


def _words() -> dist.ProcessGroup:
    """The group for words between processes, on CPUs; gradients on GPUs have the default one."""
    assert _channel is not None
    return _channel


@contextmanager
def join_team(device: torch.device) -> Iterator[Team]:
    """Within it, this process is a member of the team that `torchrun` started; or of none but itself.

    Raises:
        RunError: when the others cannot be reached, at the start or later.
    """
    global _channel
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 or _channel is not None:
        yield Team() if _channel is None else Team(dist.get_rank(), dist.get_world_size())
        return
    if not dist.is_available():
        raise ArrnError("this PyTorch was built without torch.distributed, which several processes need")
    if "RANK" not in os.environ:
        raise ArrnError(f"WORLD_SIZE is {size} but RANK is not set: torchrun sets both, or unset WORLD_SIZE")
    rank = int(os.environ["RANK"])
    if device.type == "cuda":
        torch.cuda.set_device(device)  # NCCL, and all that asks for "the" GPU, would take the first one
    try:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=_PATIENCE)
        _channel = cast(dist.ProcessGroup, dist.new_group(backend="gloo", timeout=_PATIENCE))
    except (RuntimeError, ValueError) as error:
        raise RunError(f"process {rank} of {size} cannot reach the others: {_first_line(error)}") from error
    # Of 1x1 weights, whose order in memory has two descriptions.
    warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
    try:
        yield Team(rank, size)
    except (dist.DistError, RuntimeError) as error:
        if not _is_lost(error):
            raise
        raise RunError(
            f"process {rank} of {size} lost the others ({_first_line(error)}); the last checkpoint is kept: "
            "start all of them again with --resume"
        ) from error
    finally:
        _channel = None
        dist.destroy_process_group()


def _is_lost(error: Exception) -> bool:
    text = str(error).lower()
    return isinstance(error, dist.DistError) or any(word in text for word in ("gloo", "nccl", "connection", "peer"))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def team_device(device: torch.device) -> torch.device:
    """The GPU of this process among those of its machine; other devices are shared."""
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
