"""Trial steps before a run: what its steps will cost, measured on a small batch and a copy of the network."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from arrn.data import Batch, Form
from arrn.errors import ArrnError
from arrn.memory import PeakMemory, in_gigabytes
from arrn.nn.arrn import ARRN
from arrn.signal.grid import Grid, format_grid
from arrn.training import TrainingStep

MakeStep = Callable[[nn.Module], TrainingStep]
"""From a copy of the network to what would train it."""

# What the process grows by, in units of what its tensors take at most: allocators keep blocks that fit nothing else.
# On a CPU 1.24 to 1.34 were measured, with freed memory kept.
_GROWTH = {"cpu": 1.35, "cuda": 1.1}
_SMALLEST, _LARGEST = 4, 16  # samples of a trial
_PART_OF_FREE = 0.3  # of the free memory, which a trial may take
_PATIENCE = 2.0  # seconds that a step of a trial may take
_VALUES_KEPT = 4  # of a layer, at most: its output, what its norm and activation keep, a gradient
_NEGLIGIBLE = 0.1  # of the free memory: what needs less at the very most is not tried


@dataclass(frozen=True)
class StepCost:
    """What training steps on one grid cost.

    Attributes:
        fixed: bytes, whatever the batch: the optimiser's state and what it works with.
        each: bytes for each sample of a batch.
        seconds: for each sample, in a batch of `tried`.
        tried: samples in the largest batch of the trial.
    """

    fixed: float
    each: float
    seconds: float
    tried: int

    def memory(self, batch: int) -> float:
        """The bytes that a step takes with `batch` samples."""
        return self.fixed + batch * self.each

    def largest_batch(self, free: float) -> int:
        """The most samples with which a step takes no more than `free` bytes; 0 where even none would fit."""
        return max(0, math.floor((free - self.fixed) / self.each))


def is_surely_small(model: nn.Module, batch: int, form: Form, grid: Grid, views: int, free: float) -> bool:
    """Whether a step fits by far, by a bound that no network exceeds: every layer as wide as the widest, at full size.

    Args:
        model: the network.
        batch: samples in a step.
        form: of the samples.
        grid: on which the largest of them enter.
        views: of each sample in a step.
        free: bytes.
    """
    layers = [module for module in model.modules() if not list(module.children())]
    widest = max([form.channels, *(max(p.shape) for p in model.parameters() if p.ndim)])
    values = batch * views * math.prod(grid) * widest * len(layers) * _VALUES_KEPT
    numbers = sum(p.numel() for p in model.parameters())
    return 4.0 * (values + 6 * numbers) < _NEGLIGIBLE * free


def try_steps(
    model: nn.Module, make_step: MakeStep, form: Form, grid: Grid, *, free: float, most: int, timed: bool = False
) -> StepCost:
    """Takes a few training steps on noise and measures them.

    Args:
        model: a copy of the network, which is trained; on its device.
        make_step: how it will be trained.
        form: of the samples.
        grid: on which they enter.
        free: bytes that may be taken.
        most: samples in a batch of the run.
        timed: whether `seconds` are wanted too, which takes more steps.

    Raises:
        ArrnError: where a step with two samples does not fit.
    """
    device = next(model.parameters()).device
    step = make_step(model.train())
    limit, first = 2 * _PART_OF_FREE * free, min(max(_SMALLEST, step.least_batch), most)
    try:
        work, seconds = _measured(step, first, form, grid, device, limit, 0)
        rooms = (_PART_OF_FREE * free / max(work.gradients, 1), 2 * _PATIENCE / max(seconds, 1e-9))
        size = _even_size(model, max(first, min(_LARGEST, most, *(int(first * room) for room in rooms))))
        if size > first:
            work, _ = _measured(step, size, form, grid, device, limit, 1)
        timed_size = size
        if timed:
            seconds = _timed(step, size, form, grid, device, 2)
            room = min(_PART_OF_FREE * free / max(work.gradients, 1), _PATIENCE / max(seconds, 1e-9))
            timed_size = max(size, min(most, int(size * room)))  # as nearly as possible what will be trained with
            # The first one takes its memory from the system, which is slow.
            seconds = min(_timed(step, timed_size, form, grid, device, number) for number in (3, 4, 5))
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        raise ArrnError(
            f"a training step on {first} {form.words} at {format_grid(grid)} takes more than "
            f"{in_gigabytes(limit)}, and {in_gigabytes(free)} are free: take a ladder with a lower top, or fewer "
            "features"
        ) from None
    growth = _GROWTH.get(device.type, max(_GROWTH.values()))
    state = _optimiser_bytes(step) + (_bytes(step.result.parameters()) if step.result is not model else 0)
    each = work.gradients / size / min(1.0, _rounding(_kept(model), size))
    return StepCost(growth * (state + work.optimiser), growth * each, seconds / timed_size, size)


@dataclass(frozen=True)
class _Work:
    """Bytes at most: until the gradients are there, and while the optimiser uses them."""

    gradients: int
    optimiser: int


def _measured(
    step: TrainingStep, size: int, form: Form, grid: Grid, device: torch.device, limit: float, number: int
) -> tuple[_Work, float]:
    batch = _noise(size, form, grid, device)
    known = [*step.model.state_dict().values(), batch.images, batch.labels, *_state_tensors(step)]
    before = 0

    with PeakMemory(device, known, limit) as measured:

        def note(*_: Any) -> None:
            nonlocal before
            before = measured.restart()

        hook = step.optimizer.register_step_pre_hook(note)
        began = time.perf_counter()
        step(batch, number)
        _ = step.totals  # waits for the device
        seconds = time.perf_counter() - began
        hook.remove()
    return _Work(before, measured.peak), seconds


def _timed(step: TrainingStep, size: int, form: Form, grid: Grid, device: torch.device, number: int) -> float:
    batch = _noise(size, form, grid, device)
    began = time.perf_counter()
    step(batch, number)
    _ = step.totals
    return time.perf_counter() - began


def _noise(size: int, form: Form, grid: Grid, device: torch.device) -> Batch:
    generator = torch.Generator().manual_seed(0)
    limits = torch.iinfo(form.dtype)
    images = torch.randint(limits.min, limits.max, (size, form.channels, *grid), dtype=form.dtype, generator=generator)
    return Batch(images.to(device), torch.zeros(size, dtype=torch.int64, device=device))


def _state_tensors(step: TrainingStep) -> Iterable[torch.Tensor]:
    return (value for state in step.optimizer.state.values() for value in state.values() if torch.is_tensor(value))


def _optimiser_bytes(step: TrainingStep) -> int:
    return _bytes(_state_tensors(step))


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _even_size(model: nn.Module, most: int) -> int:
    """A batch of at most so many samples of which dropout keeps nearly the share that it keeps of a large one."""
    kept = _kept(model)
    sizes = range(max(_SMALLEST, most // 2), most + 1)
    return min(sizes, key=lambda size: (round(abs(1 - _rounding(kept, size)), 3), -size), default=most)


def _kept(model: nn.Module) -> float:
    """The share of a batch that the highest level of an ARRN works on in training; 1 where dropout spares no work."""
    if not isinstance(model, ARRN) or model.dropout.draw != "stratified" or not model.droppable():
        return 1.0
    return model.dropout.survival(len(model.droppable()))[0]


def _rounding(kept: float, size: int) -> float:
    """The share of a batch of `size` that is kept, in units of what it should be; 1 where nothing is kept."""
    return round(size * kept) / (size * kept) or 1.0 if kept else 1.0
