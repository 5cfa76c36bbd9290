"""Mean and standard deviation of a training set, per channel."""

from __future__ import annotations

import torch

from arrn.data.batches import Batches
from arrn.errors import ArrnError
from arrn.signal.scaling import full_scale

__all__ = ["measure_statistics"]

_ENOUGH = 20_000  # samples; more change the third digit at most


def measure_statistics(batches: Batches) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of the samples divided by their `full_scale`, over an epoch's first ones."""
    total = square = torch.zeros((), dtype=torch.float64)
    samples = images = 0
    for batch in batches.epoch(0):
        pixels = batch.images.movedim(1, 0).flatten(1).float() / full_scale(batch.images.dtype)
        total = total + pixels.sum(dim=1).cpu().double()
        square = square + pixels.square().sum(dim=1).cpu().double()
        samples += pixels.shape[1]
        images += batch.total
        if images >= _ENOUGH:
            break
    sums = batches.team.add_up([*total.tolist(), *square.tolist(), float(samples)])
    total, square = torch.tensor(sums[:-1], dtype=torch.float64).chunk(2)
    mean = total / sums[-1]
    std = (square / sums[-1] - mean.square()).clamp_min(0).sqrt()
    if not bool((std > 0).all()):
        raise ArrnError(f"the training samples are constant: standard deviations {std.tolist()} cannot normalise them")
    return tuple(mean.tolist()), tuple(std.tolist())
