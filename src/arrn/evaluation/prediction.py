"""Answers for images or clips of any and different sizes, as many as there are."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from arrn.evaluation.accuracy import affordable_batch
from arrn.nn.network import Policy, enter_together
from arrn.signal.grid import Grid
from arrn.signal.scaling import Normalisation

_TOGETHER = 64  # images at most that are kept and run at once


@dataclass(frozen=True)
class Prediction:
    """What the network says of one image.

    Attributes:
        label: the number of the class.
        probability: that it gives that class.
        grid: on which the image entered the network.
        seconds: that it took, as a share of the images it ran with.
    """

    label: int
    probability: float
    grid: Grid
    seconds: float


@torch.no_grad()
def predict(
    model: nn.Module, images: Iterable[torch.Tensor], normalisation: Normalisation, policy: Policy | None = None
) -> list[Prediction]:
    """Takes images a few at a time, and runs those of them together that enter the network on the same grid.

    Args:
        model: the network; set to evaluation mode.
        images: uint8 (sound: int16), each of shape (channels, *size), on any device; what an iterator reads is let go
            as soon as it is answered, so that any number of files fits into memory.
        normalisation: from that to what the network sees, on the network's device.
        policy: an ARRN's, for sizes between two grids; by default its own.

    Returns:
        One prediction for each image, in their order.
    """
    model.eval()
    return [answer for group in _groups(images) for answer in _predict_group(model, group, normalisation, policy)]


def _groups(images: Iterable[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Few enough images at a time to be affordable; a group is emptied before the next is read."""
    group: list[torch.Tensor] = []
    for image in images:
        group.append(image)
        if len(group) >= affordable_batch(_TOGETHER, [tuple(each.shape[1:]) for each in group]):
            yield group
            group.clear()
    if group:
        yield group


def _predict_group(
    model: nn.Module, images: Sequence[torch.Tensor], normalisation: Normalisation, policy: Policy | None
) -> list[Prediction]:
    device = next(model.parameters()).device
    signals = [image[None] for image in images]
    found: dict[int, Prediction] = {}
    began = time.perf_counter()
    for grid, stacked, places in enter_together(model, signals, policy, prepare=lambda x: normalisation(x.to(device))):
        chances = model(stacked).float().softmax(dim=1).cpu()
        each = (time.perf_counter() - began) / len(places)
        for place, row in zip(places, chances, strict=True):
            found[place] = Prediction(int(row.argmax()), float(row.max()), grid, each)
        began = time.perf_counter()
    return [found[place] for place in range(len(images))]
