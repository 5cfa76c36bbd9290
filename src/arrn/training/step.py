"""One training step: a batch shared out over resolutions, the loss, the optimiser, and what is counted of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import accumulate
from typing import cast

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from arrn.data.augmentation import Augmentation, cut_and_mix
from arrn.data.batches import Batch
from arrn.data.epochs import derive_seed
from arrn.data.source import word_for
from arrn.errors import ArrnError
from arrn.gpu import Replay
from arrn.nn.arrn import ARRN
from arrn.nn.dropout import BlocklessLevel, LaplacianDropout, rates_for_shares
from arrn.nn.network import as_network, classes_of, enter_together, entry_grid
from arrn.signal.grid import Grid, format_grid, grid_of
from arrn.signal.resample import resample
from arrn.teamwork import Team
from arrn.training.optimisation import WeightAverage, learning_rate, make_optimizer, set_learning_rate
from arrn.training.recipe import Recipe, Shares


def share_out(
    model: nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    resolutions: Sequence[int],
    shares: Sequence[float] | None = None,
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Lowers a share of a batch to each of `resolutions`, by the perfect kernel, as evaluation does.

    Shares that enter the network on the same grid are brought there and stacked, so that the batch
    norms of a fixed-resolution network see all resolutions at once, as they will in use. A
    switchable network gets one batch for each of its sizes.

    Args:
        model: the network that is trained.
        images: normalised, shape (batch, channels, *grid).
        labels: what belongs to each image, shape (batch, ...).
        resolutions: none above the grid; those above are left as they are.
        shares: of each of them, in the same order; equal ones by default.

    Returns:
        Images and labels, for each grid.
    """
    size = grid_of(images)
    # Batches come shuffled, so shares in the order of the batch are random ones. A small one may leave some empty.
    cuts: int | list[int] = len(resolutions)
    if shares is not None:
        cuts = [round(len(images) * part / sum(shares)) for part in accumulate(shares[:-1])]
    parts = zip(resolutions, images.tensor_split(cuts), labels.tensor_split(cuts), strict=True)
    lowered = [(resample(x, _lowered(size, resolution)), y) for resolution, x, y in parts if len(x)]
    entering = enter_together(model, [x for x, _ in lowered])
    return [(stacked, torch.cat([lowered[place][1] for place in places])) for _, stacked, places in entering]


def dropout_for(model: ARRN, shares: Shares) -> tuple[float, ...]:
    """The p of every level with which an ARRN's dropout leaves samples at each resolution as often as wished.

    Raises:
        ArrnError: for a resolution that is neither a grid of its ladder nor one of its blockless sizes.
    """
    left = [step.lower if isinstance(step, BlocklessLevel) else step.next_size for step in model.droppable()]
    return rates_for_shares(dict(shares), [max(grid) for grid in (model.grids[0], *left)])


def uses_all_levels(model: nn.Module, grids: Iterable[Grid], resolutions: Sequence[int]) -> bool:
    """Whether a batch on any of `grids`, shared out over `resolutions`, runs every part of the network.

    An ARRN skips the levels above the grid on which its input enters; a switchable network runs the batch norms of
    that grid alone.
    """
    needed = as_network(model).grids_for_all_parts
    entered = (
        {entry_grid(model, _lowered(grid, resolution)) for resolution in resolutions or (max(grid),)} for grid in grids
    )
    return all(found.issuperset(needed) for found in entered)


def _lowered(size: Grid, resolution: int) -> Grid:
    return tuple(min(resolution, n) for n in size)


def autocast_for(recipe: Recipe, device: torch.device) -> Callable[[], AbstractContextManager[object]]:
    """What the forward pass runs in: bfloat16 autocast, or nothing."""
    if recipe.precision == "auto":
        wanted = device.type == "cuda" and torch.cuda.is_bf16_supported()
    else:
        wanted = recipe.precision == "bfloat16"
    if not wanted:
        return nullcontext
    if device.type == "mps":
        raise ArrnError("precision = 'bfloat16' is for cpu and cuda; on mps use 'float32'")
    return lambda: torch.autocast(device.type, torch.bfloat16)


def order_memory(model: nn.Module, ndim: int) -> nn.Module:
    """Puts weights in the memory order that convolutions over `ndim` axes are fastest in."""
    order = {2: torch.channels_last, 3: torch.channels_last_3d}.get(ndim, torch.contiguous_format)
    for parameter in model.parameters():
        if parameter.ndim == ndim + 2:
            parameter.data = parameter.data.contiguous(memory_format=order)
    return model


def draws_on_device(model: nn.Module) -> bool:
    """Whether each step does the same work: a draw made by the host decides anew what runs."""
    return all(
        module.draw != "batch" and not module.unbiased
        for module in model.modules()
        if isinstance(module, LaplacianDropout)
    )


def may_leave_out(model: nn.Module, share: int, resolutions: int) -> bool:
    """Whether a process with `share` samples of a batch may have none for a level, or for one of the resolutions."""
    if resolutions > share or not draws_on_device(model):
        return True
    if not isinstance(model, ARRN) or model.dropout.draw == "sample":
        return False
    survival = model.dropout.survival(len(model.droppable()))
    return any(round(share * q) == 0 for q in survival)


@contextmanager
def _enough_for_batch_norm(x: torch.Tensor) -> Iterator[None]:
    """Around a forward pass: one value per channel has no variance, which torch says without saying where."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        word = word_for(x.ndim - 2)
        raise ArrnError(
            f"a batch of {len(x)} {word}{'s' * (len(x) > 1)} at {format_grid(grid_of(x))} is too few for this "
            f"network's batch norms: a larger batch_size, fewer resolutions or more {word}s of that size would do"
        ) from None


class _Parts(nn.Module):
    """A network on several batches, of different grids, as one call: what is distributed must be one."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        answers = []
        for x in parts:
            with _enough_for_batch_norm(x):
                answers.append(self.network(x))
        return answers


_TEMPERATURE = 2.0  # by which logits are divided in distillation (Hinton et al., 2015)


def _check_places(model: nn.Module, why: str) -> None:
    """The classes must be known, and where a sample stands in a batch must tell its resolution."""
    if (classes_of(model) or 0) < 2:
        raise ArrnError(f"{why}, so the network must tell how many classes it has, 2 or more")
    if isinstance(model, ARRN):
        model.dropout.shuffled = True  # as batches are


class TrainingStep:
    """Takes a network from one step to the next, and keeps count without waiting for the device.

    Everything random in a step (augmentation, dropout) is drawn from a seed made of the run's seed and
    the step's number, so a run goes on from a checkpoint exactly as it would have without one.

    Args:
        model: the network, on its device.
        augmentation: from what is stored to what the network sees.
        recipe: optimiser, schedule, precision, resolutions.
        steps: of the whole run, for the schedule.
        seed: of the run.
        compiled: whether to run the network through `torch.compile`.
        captured: whether to record the whole step as a CUDA graph (`Replay`); only on a GPU, and by itself.
        team: the processes that share each batch; their gradients are averaged (DistributedDataParallel).
        least_share: the fewest samples that a process of a team ever gets of a batch.
        grids: that batches come on; none is the network's own alone.
    """

    def __init__(
        self,
        model: nn.Module,
        augmentation: Augmentation,
        recipe: Recipe,
        steps: int,
        seed: int,
        *,
        compiled: bool = False,
        captured: bool = False,
        team: Team | None = None,
        least_share: int = 0,
        grids: Collection[Grid] = (),
    ) -> None:
        device = next(model.parameters()).device
        self.model = model
        self.team = team or Team()
        captured = captured and device.type == "cuda" and self.team.size == 1
        self.optimizer = make_optimizer(recipe, model.parameters(), device if captured else None)
        self._augmentation = augmentation.to(device)
        self._recipe = recipe
        self._steps = steps
        self._seed = seed
        self._autocast = autocast_for(recipe, device)
        self._average = WeightAverage(model, recipe.weight_averaging) if recipe.weight_averaging else None
        if recipe.cutmix or recipe.distillation:
            _check_places(model, "cutmix mixes targets" if recipe.cutmix else "distillation compares predictions")
        self._shares: Shares = ()
        self._parts: list[float] | None = None
        self._take_shares(recipe.shares)
        network = cast(nn.Module, torch.compile(model, dynamic=False)) if compiled else model
        self._network: nn.Module = _Parts(network)
        if self.team.size > 1:
            idle = may_leave_out(model, least_share, len(recipe.resolutions))
            idle = idle or not uses_all_levels(model, grids, recipe.resolutions)
            # Uneven shares may leave out a resolution, later ones a level.
            idle = idle or bool(recipe.final_shares or (recipe.shares and recipe.resolutions))
            self._network = DistributedDataParallel(self._network, find_unused_parameters=idle)
        self._loss = torch.zeros((), device=device)
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self._seen = 0
        self._take: Callable[[torch.Tensor, torch.Tensor, int], None] = self._compute
        self._replay: Replay[None] | None = None
        if captured and draws_on_device(model):
            replay = Replay(lambda images, labels: self._compute(images, labels, len(labels)), device)
            self._replay = replay
            self._take = lambda images, labels, whole: replay(images, labels)

    def __call__(self, batch: Batch, number: int) -> None:
        """Takes step `number` of the run, counted from 0."""
        others = (self.team.rank,) if self.team.rank else ()
        torch.manual_seed(derive_seed(self._seed, "step", number, *others))
        set_learning_rate(self.optimizer, learning_rate(self._recipe, number, self._steps))
        if self._average is not None:
            self._average.prepare(number)
        self._take_shares(self._shares_at(number))
        self._take(batch.images, batch.labels, batch.total)
        self._seen += len(batch.labels) * self._recipe.views

    def _shares_at(self, number: int) -> Shares:
        late = number >= self._recipe.shares_change_at * self._steps
        return self._recipe.final_shares if late and self._recipe.final_shares else self._recipe.shares

    def _take_shares(self, shares: Shares) -> None:
        """From now on shares batches out so. Other shares have other shapes, which are recorded anew."""
        if shares == self._shares:
            return
        if self._recipe.resolutions:
            self._parts = [dict(shares).get(resolution, 0.0) for resolution in self._recipe.resolutions]
        elif isinstance(self.model, ARRN):
            self.model.dropout.p = dropout_for(self.model, shares)
        else:
            raise ArrnError("shares of a network that is no ARRN are those of resolutions, and this recipe has none")
        if self._shares and self._replay is not None:
            self._replay.forget()
        self._shares = shares

    def _compute(self, images: torch.Tensor, labels: torch.Tensor, whole: int) -> None:
        """What happens on the device; nothing here waits for it."""
        recipe = self._recipe
        images, targets = self._changed(images, labels)
        places = torch.arange(len(images), device=images.device)
        parts = [(images, places)]
        if recipe.resolutions:
            parts = share_out(self.model, images, places, recipe.resolutions, self._parts)
            places = torch.cat([part for _, part in parts])
        self.optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            answers = self._network([x for x, _ in parts])
        # In float32 at least. Gradients are averaged over processes: each has a share of the sum.
        right = targets[places]
        logits = torch.cat(answers)
        wide = logits if logits.dtype == torch.float64 else logits.float()
        each = nn.functional.cross_entropy(wide, right, reduction="none", label_smoothing=recipe.label_smoothing)
        if recipe.distillation:
            each = self._distilled(each, wide, places)
        loss = each.sum()
        torch.autograd.backward(loss * self.team.size / (whole * recipe.views))
        self._loss += loss.detach()
        self._correct += (logits.argmax(dim=1) == (right if right.ndim == 1 else right.argmax(dim=1))).sum()
        self.optimizer.step()
        if self._average is not None:
            self._average.update()

    def _changed(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Every view of every sample, augmented, and its target; the second views follow all of the first.

        Views are augmented apart, but for distillation: there the first view is to answer for the others.
        """
        recipe = self._recipe
        alike = bool(recipe.distillation)
        views = (recipe.views, *[1] * (images.ndim - 1))
        if not alike:
            images, labels = images.repeat(views), labels.repeat(recipe.views)
        images = self._augmentation(images)
        if recipe.cutmix:
            images, labels = self._mixed(images, labels)
        if alike:
            images, labels = images.repeat(views), labels.repeat(recipe.views, *[1] * (labels.ndim - 1))
        return images, labels

    def _distilled(self, losses: torch.Tensor, logits: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """The loss of each sample, where later views also answer to the first view's prediction of the same sample.

        Args:
            losses: the cross-entropy of each sample, shape (batch,).
            logits: shape (batch, classes).
            places: where in the batch each sample stands; the first view has the first places.
        """
        share, views = self._recipe.distillation, self._recipe.views
        order = places.argsort()
        by_place = logits[order]
        first = by_place[: len(order) // views].detach().repeat(views, 1)
        softer = nn.functional.log_softmax(by_place / _TEMPERATURE, dim=1)
        wanted = nn.functional.softmax(first / _TEMPERATURE, dim=1)
        apart = nn.functional.kl_div(softer, wanted, reduction="none").sum(dim=1) * _TEMPERATURE**2
        later = torch.arange(len(order), device=order.device) >= len(order) // views
        return torch.where(later, (1 - share) * losses[order] + share * apart, losses[order])

    def _mixed(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """CutMix of the samples at high resolutions, which come first; labels become the probability of each class."""
        recipe = self._recipe
        shares = self._shares or tuple((resolution, 1.0) for resolution in sorted(recipe.resolutions, reverse=True))
        high = sum(share for resolution, share in shares if resolution >= recipe.cutmix_from)
        part = high / sum(share for _, share in shares) if shares else 1.0
        classes = classes_of(self.model)
        assert classes is not None
        targets = torch.zeros(len(labels), classes, device=labels.device).scatter_(1, labels.unsqueeze(1), 1.0)
        return cut_and_mix(images, targets, recipe.cutmix, round(part * len(images)))

    @property
    def least_batch(self) -> int:
        """The samples that are enough for two or more at each resolution of the recipe, as batch norms need them."""
        if not self._recipe.resolutions:
            return 1
        parts = [part for part in self._parts or [1.0] * len(self._recipe.resolutions) if part > 0]
        return math.ceil(3 * sum(parts) / (min(parts) * self._recipe.views))

    @property
    def result(self) -> nn.Module:
        """What is validated and saved: a copy of the network with averaged weights, or the network itself."""
        return self.model if self._average is None else self._average.network

    @property
    def totals(self) -> tuple[float, int, int]:
        """Summed loss, correct answers and samples since the last `reset`; waits for the device."""
        return float(self._loss), int(self._correct), self._seen

    @property
    def team_totals(self) -> tuple[float, int, int]:
        """`totals` of all processes together; each of them must ask."""
        loss, correct, seen = self.team.add_up([*map(float, self.totals)])
        return loss, round(correct), round(seen)

    def reset(self, loss: float = 0.0, correct: int = 0, seen: int = 0) -> None:
        """Starts counting again, or goes on counting from where a checkpoint was."""
        self._loss.fill_(loss)
        self._correct.fill_(correct)
        self._seen = seen
