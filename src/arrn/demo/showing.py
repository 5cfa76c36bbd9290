"""Sample images at each resolution, with what each network says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from arrn.data import open_dataset
from arrn.evaluation import Prediction, lower, predict
from arrn.experiments import load_network

__all__ = ["Showing", "show_answers"]


@dataclass(frozen=True)
class Showing:
    """One image at one resolution.

    Attributes:
        pixels: uint8 of shape (3, resolution, resolution).
        truth: its class.
        answers: for each network, the class it gives and how it came to it.
    """

    pixels: torch.Tensor
    truth: str
    answers: tuple[tuple[str, Prediction], ...]


def show_answers(
    folders: Sequence[Path], resolutions: Sequence[int], count: int = 8, device: str = "cpu"
) -> list[list[Showing]]:
    """For each of `count` test images of differing classes, a row of it at each resolution.

    The images are the first of each class in the test split: nobody chose them.
    """
    source = open_dataset("sample").test
    assert source is not None
    names = source.class_names
    first = [int((source.labels == label).nonzero()[0]) for label in range(min(count, len(names)))]
    originals = torch.stack([source.read(index) for index in first]).float()
    rows: list[list[Showing]] = [[] for _ in first]
    networks = [load_network(folder, torch.device(device)) for folder in folders]
    for resolution in resolutions:
        low = lower(originals, (resolution, resolution)).round().clamp(0, 255).to(torch.uint8)
        answers = [predict(model, list(low), normalisation) for model, _, normalisation in networks]
        for n, index in enumerate(first):
            said = tuple((names[each[n].label], each[n]) for each in answers)
            rows[n].append(Showing(low[n], names[int(source.labels[index])], said))
    return rows
