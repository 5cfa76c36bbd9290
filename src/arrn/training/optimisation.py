"""What moves the weights: the optimiser, its learning rate over a run, and their moving average."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable

import torch
from torch import nn

from arrn.training.recipe import Recipe


def make_optimizer(
    recipe: Recipe, parameters: Iterable[torch.nn.Parameter], capture_on: torch.device | None = None
) -> torch.optim.Optimizer:
    """AdamW or SGD, in one fused pass over the parameters.

    With `capture_on` its step can be recorded in a CUDA graph: the learning rate is a number on that device.
    """
    rate: float | torch.Tensor = recipe.learning_rate
    if capture_on is not None:
        rate = torch.tensor(rate, dtype=torch.float32, device=capture_on)
    if recipe.optimizer == "adamw":
        optimizer = torch.optim.AdamW(
            parameters,
            rate,
            betas=recipe.betas,
            weight_decay=recipe.weight_decay,
            fused=True,
            capturable=capture_on is not None,
        )
        # Its first steps are taken before the recording; torch would warn of that.
        optimizer._warned_capturable_if_run_uncaptured = True
        return optimizer
    return torch.optim.SGD(
        parameters,
        rate,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
        nesterov=recipe.nesterov and recipe.momentum > 0,  # without momentum it changes nothing, and torch refuses it
        fused=True,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Sets the learning rate of every group, on the device where it lives there."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def learning_rate(recipe: Recipe, step: int, steps: int) -> float:
    """Half a cosine from `learning_rate` at step 0 to `final_learning_rate` at the last of `steps`.

    A warm-up goes before it: a straight line that would be at 0 one step before the first.

    >>> learning_rate(Recipe(learning_rate=1.0, final_learning_rate=0.0), 5, 11)
    0.5
    >>> warmed = Recipe(epochs=10, warm_up=3, learning_rate=1.0, final_learning_rate=0.0)
    >>> [round(learning_rate(warmed, step, steps=10), 2) for step in range(10)]
    [0.25, 0.5, 0.75, 1.0, 0.93, 0.75, 0.5, 0.25, 0.07, 0.0]
    """
    low, high = recipe.final_learning_rate, recipe.learning_rate
    warm = round(recipe.warm_up * steps / recipe.epochs)
    if step < warm:
        return high * (step + 1) / (warm + 1)
    done = (step - warm) / max(1, steps - 1 - warm)
    return low + (high - low) * (1 + math.cos(math.pi * done)) / 2


class WeightAverage:
    """An exponential moving average of a network's weights and batch-norm statistics.

    At the beginning it forgets faster than its decay says, so that it does not remember the untrained weights: after n
    updates it keeps (n + 1)/(n + 10) of itself, if that is less than the decay.

    Args:
        model: whose weights are averaged; its tensors must stay where they are.
        decay: what the average keeps of itself in each update, in (0, 1).

    Attributes:
        network: a copy of the model with the averaged weights.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.network = copy.deepcopy(model)
        self._decay = decay
        kept = set(model.state_dict())  # other buffers are constants
        mine, theirs = ({**dict(net.named_parameters()), **dict(net.named_buffers())} for net in (self.network, model))
        pairs = [(mine[name].detach(), theirs[name].detach()) for name in mine if name in kept]
        self._averaged = [(mine, theirs) for mine, theirs in pairs if mine.is_floating_point()]
        self._copied = [(mine, theirs) for mine, theirs in pairs if not mine.is_floating_point()]
        # A tensor, so that a recorded step reads its new value at each replay.
        self._share = torch.zeros((), device=next(model.parameters()).device)

    def prepare(self, number: int) -> None:
        """Sets how much of the new weights the update of step `number`, counted from 0, takes in."""
        self._share.fill_(1 - min(self._decay, (number + 1) / (number + 10)))

    def update(self) -> None:
        """Takes the model's weights in; nothing here waits for the device."""
        averages = [mine for mine, _ in self._averaged]
        steps = torch._foreach_sub([theirs for _, theirs in self._averaged], averages)
        torch._foreach_mul_(steps, self._share)
        torch._foreach_add_(averages, steps)
        for mine, theirs in self._copied:
            mine.copy_(theirs)
