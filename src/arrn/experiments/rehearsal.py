"""A rehearsal: one step on a copy of the network while samples are still read.

On a GPU the first step of all compiles kernels and tries out algorithms, a quarter of a minute in which the processor
has little to do; reading samples takes as long and leaves the GPU idle.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import torch
from torch import nn

from arrn.data import Batch
from arrn.training import TrainingStep

__all__ = ["rehearsing"]

logger = logging.getLogger(__name__)


@contextmanager
def rehearsing(
    model: nn.Module, make_step: Callable[[nn.Module], TrainingStep], shape: tuple[int, ...], dtype: torch.dtype
) -> Iterator[None]:
    """Takes a step in the background; leaving waits until it is done.

    The network, its optimiser and what is drawn at random later stay as they are: a copy takes the step, and every
    step draws from a seed of its own.

    Args:
        model: on its device; a copy of it is trained.
        make_step: how it will be trained, by steps that are not recorded.
        shape: of the batches to come, (batch, channels, *grid).
        dtype: that samples are stored in.
    """
    thread = Thread(target=_take_step, args=(copy.deepcopy(model), make_step, shape, dtype), name="rehearsal")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _take_step(
    model: nn.Module, make_step: Callable[[nn.Module], TrainingStep], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    try:
        device = next(model.parameters()).device
        labels = torch.zeros(shape[0], dtype=torch.int64, device=device)
        batch = Batch(torch.zeros(shape, dtype=dtype, device=device), labels)
        step = make_step(model.train())
        step(batch, 0)
        _ = step.totals  # waits for the device
    except Exception as error:  # what is wrong will be wrong again, and told, when it matters
        logger.debug("the rehearsal failed: %s", error)
