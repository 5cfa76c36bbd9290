"""How a run is carried out, as against what it is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from arrn.errors import ArrnError

__all__ = ["Machine"]


@dataclass(frozen=True)
class Machine:
    """How a run is carried out; its result does not depend on it, but for rounding.

    Attributes:
        device: "auto", "cpu", "cuda" or "mps".
        stream: read samples from disk (True), keep them in memory (False), or as memory allows (None).
        workers: processes that read from disk.
        compiled: whether the network goes through `torch.compile`.
        sync_batch_norm: with several processes, batch norms take their statistics over all of them; only on GPUs.
        captured: whether a GPU replays each step from a CUDA graph instead of being told its kernels one by one;
            without effect on other devices and with several processes.
        deterministic: the same bits each time on a GPU too.
        checkpoint_every: epochs between checkpoints; None is as the time goes (`arrn.training.cadence`).
        tensorboard: also log for TensorBoard.
    """

    device: str = "auto"
    stream: bool | None = None
    workers: int = 2
    compiled: bool = False
    deterministic: bool = False
    checkpoint_every: float | None = None
    tensorboard: bool = False
    captured: bool = True
    sync_batch_norm: bool = False

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise ArrnError(f"the number of workers must be at least 0, got {self.workers}")
        every = self.checkpoint_every
        if every is not None and not (math.isfinite(every) and every > 0):
            raise ArrnError(f"the epochs between checkpoints must be a number above 0, got {every}")
