"""How many samples a step takes: chosen to fit the memory, or checked against it before the first step."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping

from torch import nn

from arrn.data import Form
from arrn.errors import ArrnError
from arrn.memory import free_memory, in_gigabytes
from arrn.runs.trial_step import MakeStep, StepCost, is_surely_small, try_steps
from arrn.signal.grid import Grid
from arrn.teamwork import Team
from arrn.training import Recipe

USUAL = 128
"""What "auto" takes at most: larger batches need another learning rate."""

_FEWEST, _STEPS = 8, 8  # samples of a batch, and batches of an epoch, that "auto" keeps where it can
_COMFORT = 0.75  # of the free memory: what "auto" fills, and from where on a run warns


def settle_batch(
    model: nn.Module,
    make_step: MakeStep,
    recipe: Recipe,
    form: Form,
    *,
    counts: Mapping[Grid, int],
    team: Team,
    kept: int,
    say: Callable[[str], None],
) -> int:
    """The batch size of a run: the recipe's if it fits the memory, or the one that is chosen for "auto".

    Args:
        model: the network, on its device; a copy of it takes a trial step, unless a step is surely small.
        make_step: how a copy is trained.
        recipe: of the run.
        form: of the samples.
        counts: of the training samples, by the grid on which they enter the network.
        team: the processes that share a batch.
        kept: bytes that the samples will take in the memory of the device, where there is room for them.
        say: told, in a line, what was chosen, or that memory is short.

    Raises:
        ArrnError: for a batch that takes more memory than is free.
    """
    device, samples = next(model.parameters()).device, sum(counts.values())
    wanted = usual_batch(samples) if recipe.batch_size == "auto" else recipe.batch_size
    grid = max(counts, key=math.prod)
    share = -(-min(wanted, samples) // team.size)
    free = free_memory(device) if device.type in ("cpu", "cuda") else math.inf  # others cannot be asked
    free = (free - min(kept, free / 2)) / (team.size if device.type == "cpu" else 1)
    cost = None
    if math.isfinite(free) and not is_surely_small(model, share, form, grid, recipe.views, free):
        cost = try_steps(copy.deepcopy(model), make_step, form, grid, free=free, most=share)
        cost = dataclasses.replace(cost, each=cost.each / team.size)
    if recipe.batch_size == "auto":
        return -team.most(-choose_batch(cost, free, samples, say))
    if cost is not None:
        check_batch(min(wanted, samples), cost, free, say)
    return wanted


def usual_batch(samples: int) -> int:
    """The batch that suits so many samples: a power of two, of which there are enough for several steps an epoch.

    >>> [usual_batch(n) for n in (40, 300, 5000)]
    [8, 32, 128]
    """
    return min(USUAL, max(_FEWEST, _power_of_two(samples // _STEPS)))


def choose_batch(cost: StepCost | None, free: float, samples: int, say: Callable[[str], None]) -> int:
    """The batch size for "auto", which is said.

    Args:
        cost: of steps; None where any usual batch fits, or where it cannot be measured.
        free: bytes.
        samples: in the training set.
        say: told, in a line, what was chosen, and why.

    Raises:
        ArrnError: where not even two samples fit.
    """
    wanted = usual_batch(samples)
    why = f"an eighth of the {samples:,} training samples" if wanted < USUAL else "the usual size"
    if cost is None:
        say(f"batch size {wanted}, {why}")
        return wanted
    fits = _power_of_two(cost.largest_batch(_COMFORT * free))
    if fits < 2:
        raise ArrnError(
            f"a step on 2 samples takes about {in_gigabytes(cost.memory(2))} of memory, and "
            f"{in_gigabytes(free)} are free: take a ladder with a lower top, or fewer features"
        )
    chosen = min(wanted, fits)
    if chosen < wanted:
        why = f"{2 * chosen} would take {in_gigabytes(cost.memory(2 * chosen))}"
    say(
        f"batch size {chosen}: a step takes about {in_gigabytes(cost.memory(chosen))} of memory, and "
        f"{in_gigabytes(free)} are free ({why})"
    )
    return chosen


def check_batch(batch: int, cost: StepCost, free: float, say: Callable[[str], None]) -> None:
    """Refuses a batch that does not fit the memory, and says so of one that hardly does, with one that would.

    Raises:
        ArrnError: for a batch that takes more than is free.
    """
    need = cost.memory(batch)
    if need <= _COMFORT * free:
        return
    fits = _power_of_two(cost.largest_batch(_COMFORT * free))
    better = (
        f"take --batch-size {fits} ({in_gigabytes(cost.memory(fits))}), or --batch-size auto"
        if fits > 1
        else "take a ladder with a lower top, or fewer features"
    )
    told = f"a step with a batch of {batch} takes about {in_gigabytes(need)} of memory"
    if need > free:
        raise ArrnError(f"{told}, and {in_gigabytes(free)} are free: {better}")
    say(f"{told}, nearly all of the {in_gigabytes(free)} that are free; if the step does not fit, {better}")


def _power_of_two(number: int) -> int:
    """The largest that is no more than the number; 0 where there is none."""
    return 1 << (number.bit_length() - 1) if number > 0 else 0
