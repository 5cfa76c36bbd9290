"""The optimiser of a recipe and the learning rate of each step."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from arrn.training.recipe import Recipe

__all__ = ["learning_rate", "make_optimizer"]


def make_optimizer(recipe: Recipe, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """AdamW or SGD, in one fused pass over the parameters."""
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(
            parameters, recipe.learning_rate, betas=recipe.betas, weight_decay=recipe.weight_decay, fused=True
        )
    return torch.optim.SGD(
        parameters, recipe.learning_rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay, fused=True
    )


def learning_rate(recipe: Recipe, step: int, steps: int) -> float:
    """Half a cosine from `learning_rate` at step 0 to `final_learning_rate` at the last of `steps`.

    >>> learning_rate(Recipe(learning_rate=1.0, final_learning_rate=0.0), 5, 11)
    0.5
    """
    done = step / max(1, steps - 1)
    low, high = recipe.final_learning_rate, recipe.learning_rate
    return low + (high - low) * (1 + math.cos(math.pi * done)) / 2
