"""What a network answers to every sample, in every setting: resolution, adaptation and policy."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn import functional as F

from arrn.data.batches import Batch, Batches
from arrn.errors import ArrnError, unknown_name
from arrn.nn.introspection import forward_memory
from arrn.nn.network import Network, Policy, as_network, enter_together
from arrn.signal.grid import Grid, grid_of
from arrn.signal.kernels import kernel
from arrn.signal.resample import resample
from arrn.signal.scaling import Normalisation
from arrn.teamwork import Team

Resampler: TypeAlias = str | Mapping[str, Any]
"""A name among `RESAMPLERS`, or a kernel's `kernel_options`."""

RESAMPLERS = ("perfect", "fair", "poor", "bicubic", "area")
_AFFORDABLE = 2**27  # numbers in a batch of samples on their own grids: half a gigabyte in float32
_MEMORY = 2**30  # bytes that a network may take for a batch

# Numbers for each place of a sample: an image's channels; a volume, next to what a network makes of it, is nothing.
_WIDTHS = {1: 3, 2: 3, 3: 32}


@dataclass(frozen=True)
class Setting:
    """One way to evaluate.

    Attributes:
        resolution: samples are brought down to it along every axis (never up); None leaves them.
        adapt: whether an ARRN skips levels; None for other networks.
        policy: an ARRN's, for sizes between two grids; None for other networks.
    """

    resolution: int | None = None
    adapt: bool | None = None
    policy: Policy | None = None


@dataclass(frozen=True)
class Answers:
    """What a network answered in one setting.

    Attributes:
        setting: which.
        predictions: the class it gave each sample, int64 of shape (samples,).
        labels: the right ones.
        grids: the grid on which each sample entered the network.
        probabilities: that it gives the class that it answered, float32 of shape (samples,); None where not kept.
    """

    setting: Setting
    predictions: torch.Tensor
    labels: torch.Tensor
    grids: tuple[Grid, ...]
    probabilities: torch.Tensor | None = None

    @property
    def correct(self) -> int:
        """How many are right."""
        return int((self.predictions == self.labels).sum())

    @property
    def total(self) -> int:
        """How many there are."""
        return len(self.labels)

    @property
    def accuracy(self) -> float:
        """The share that is right."""
        return self.correct / self.total

    @property
    def balanced_accuracy(self) -> float:
        """The mean over classes of the share that is right, for classes of uneven size."""
        counts = torch.bincount(self.labels)
        right = torch.bincount(self.labels[self.predictions == self.labels], minlength=len(counts))
        return float((right[counts > 0] / counts[counts > 0]).mean())

    def by_grid(self) -> dict[Grid, tuple[int, int]]:
        """Correct and total for each grid, largest first."""
        hits: defaultdict[Grid, list[bool]] = defaultdict(list)
        for grid, hit in zip(self.grids, (self.predictions == self.labels).tolist(), strict=True):
            hits[grid].append(hit)
        return {grid: (sum(hits[grid]), len(hits[grid])) for grid in sorted(hits, reverse=True)}


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Batches,
    settings: Sequence[Setting],
    normalisation: Normalisation,
    resampler: Resampler = "perfect",
    progress: Callable[[int], None] | None = None,
) -> list[Answers]:
    """Answers of `model` to every sample, in every setting; the data are read once.

    Args:
        model: the network, on the device of the batches; set to evaluation mode.
        batches: the samples on their own grids, as they are stored.
        settings: what to evaluate.
        normalisation: from that to what the network sees.
        resampler: how lower resolutions are made.
        progress: told the number of samples done so far, in a team as far as this process can tell.
    """
    model.eval()
    # The same evaluation under two names is done once: running every level has no use for a policy.
    plans = {setting: _without_idle_policy(setting) for setting in settings}
    predictions: dict[Setting, list[torch.Tensor]] = {plan: [] for plan in plans.values()}
    probabilities: dict[Setting, list[torch.Tensor]] = {plan: [] for plan in plans.values()}
    grids: dict[Setting, list[Grid]] = {plan: [] for plan in plans.values()}
    labels: list[torch.Tensor] = []
    by_resolution: defaultdict[int | None, list[Setting]] = defaultdict(list)
    for plan in predictions:
        by_resolution[plan.resolution].append(plan)
    done = 0
    for group in _groups(batches.in_order(), batches.batch_size):
        samples = [normalisation(batch.images) for batch in group]
        labels += [batch.labels.cpu() for batch in group]
        for resolution in by_resolution:
            lowered = [_lowered(x, resolution, resampler) for x in samples]
            for plan in by_resolution[resolution]:
                answers, chances, entered = _answer(model, lowered, plan)
                predictions[plan].append(answers)
                probabilities[plan].append(chances)
                grids[plan] += entered
        done += sum(len(batch.labels) for batch in group) * batches.team.size
        if progress is not None:
            progress(done)
    # A process without a share of few samples still takes part in the gathering.
    team, none = batches.team, torch.empty(0, dtype=torch.int64)
    right = team.gather(torch.cat([none, *labels]))
    gathered = {
        plan: (
            team.gather(torch.cat([none, *(part.cpu() for part in predictions[plan])])),
            right,
            _gather_grids(grids[plan], len(batches.grids[0]), team),
            team.gather(torch.cat([none.float(), *(part.cpu() for part in probabilities[plan])])),
        )
        for plan in predictions
    }
    return [Answers(setting, *gathered[plan]) for setting, plan in plans.items()]


def _gather_grids(grids: Sequence[Grid], ndim: int, team: Team) -> tuple[Grid, ...]:
    if team.size == 1:
        return tuple(grids)
    told = team.gather(torch.tensor(grids, dtype=torch.int64).view(-1, ndim))
    return tuple(map(tuple, told.tolist()))


def _without_idle_policy(setting: Setting) -> Setting:
    return Setting(setting.resolution, False, None) if setting.adapt is False else setting


def _groups(batches: Iterable[Batch], batch_size: int) -> Iterable[list[Batch]]:
    """Gathers batches until there is enough for one run: images of rare sizes share it."""
    group: list[Batch] = []
    for batch in batches:
        group.append(batch)
        if sum(len(b.labels) for b in group) >= batch_size:
            yield group
            group = []
    if group:
        yield group


def _lowered(x: torch.Tensor, resolution: int | None, resampler: Resampler) -> torch.Tensor:
    return x if resolution is None else lower(x, tuple(min(n, resolution) for n in grid_of(x)), resampler)


def _answer(
    model: nn.Module, samples: Sequence[torch.Tensor], setting: Setting
) -> tuple[torch.Tensor, torch.Tensor, list[Grid]]:
    """For samples at the setting's resolution, in their order: classes, their probabilities, grids of entry."""
    adapt = setting.adapt is not False
    whole = as_network(model).adapts and not adapt
    found: dict[int, tuple[torch.Tensor, torch.Tensor, Grid]] = {}
    for grid, stacked, places in enter_together(model, samples, setting.policy, adapt):
        logits = model(stacked, adapt=False) if whole else model(stacked)
        lengths = [len(samples[place]) for place in places]
        classes = logits.argmax(dim=1)
        chances = logits.float().softmax(dim=1).gather(1, classes[:, None])[:, 0]
        parts = zip(classes.split(lengths), chances.split(lengths), strict=True)
        found |= {place: (*part, grid) for place, part in zip(places, parts, strict=True)}
    classes_of, chances_of, grids_of = zip(*(found[place] for place in range(len(samples))), strict=True)
    entered = [grid for part, grid in zip(classes_of, grids_of, strict=True) for _ in part]
    return torch.cat(classes_of), torch.cat(chances_of), entered


def affordable_batch(batch_size: int, sizes: Iterable[Grid], model: nn.Module | None = None) -> int:
    """At most `batch_size`, and few enough that a batch of the largest of `sizes` does not fill the memory.

    Args:
        batch_size: that is wanted.
        sizes: of the samples.
        model: the network that will run on its highest grid, if that is to be affordable too.

    >>> affordable_batch(256, [(32, 32)]), affordable_batch(256, [(32, 32), (3000, 4000)])
    (256, 3)
    >>> affordable_batch(256, [(64, 64, 64)])
    16
    """
    largest = max(_WIDTHS[len(size)] * math.prod(size) for size in sizes)
    return max(1, min(batch_size, _AFFORDABLE // largest, _MEMORY // _memory_of_one(model)))


def _memory_of_one(model: nn.Module | None) -> int:
    """The bytes that a sample takes on the highest grid of a network, which may be far above the sample's own."""
    if not isinstance(model, Network) or not model.grids:
        return 1
    return forward_memory(model, (1, model.in_channels, *model.grids[0]))


def lower(x: torch.Tensor, size: Grid, resampler: Resampler = "perfect") -> torch.Tensor:
    """Takes floating-point samples of shape (batch, channels, *space) down to `size`.

    ``"bicubic"`` is torch's, with antialiasing, for images (Pillow's on floats); ``"area"`` averages.
    Both use cell-centred grids, as the kernels do. The same size is left as it is.
    """
    check_resampler(resampler, x.ndim - 2)
    if grid_of(x) == size:
        return x
    if resampler == "bicubic":
        return F.interpolate(x, size, mode="bicubic", antialias=True)
    if resampler == "area":
        return F.interpolate(x, size, mode="area")
    return resample(x, size, kernel(resampler))


def check_resampler(resampler: Resampler, ndim: int) -> None:
    """Raises unless `lower` can use it for signals of `ndim` axes of space."""
    if not isinstance(resampler, str):
        kernel(resampler)
    elif resampler not in RESAMPLERS:
        raise unknown_name("resampler", resampler, RESAMPLERS)
    elif resampler == "bicubic" and ndim != 2:
        raise ArrnError(f"the bicubic resampler is for images, got {ndim} axes of space; use 'area'")
