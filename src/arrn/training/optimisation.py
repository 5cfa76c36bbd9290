"""The optimiser of a recipe and the learning rate of each step."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from arrn.training.recipe import Recipe

__all__ = ["learning_rate", "make_optimizer", "set_learning_rate"]


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
    return torch.optim.SGD(parameters, rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Sets the learning rate of every group, on the device where it lives there."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def learning_rate(recipe: Recipe, step: int, steps: int) -> float:
    """Half a cosine from `learning_rate` at step 0 to `final_learning_rate` at the last of `steps`.

    >>> learning_rate(Recipe(learning_rate=1.0, final_learning_rate=0.0), 5, 11)
    0.5
    """
    done = step / max(1, steps - 1)
    low, high = recipe.final_learning_rate, recipe.learning_rate
    return low + (high - low) * (1 + math.cos(math.pi * done)) / 2
