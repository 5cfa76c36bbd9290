"""Small networks that tests save, and what they do to the files."""

import json
from pathlib import Path

import torch
from torch import nn

import arrn
from arrn.nn import ARRN


def small(**options: object) -> ARRN:
    defaults = {"sizes": (8, 5), "features": (4, 6), "depth": 1, "expansion": 2, "num_classes": 3}
    return arrn.create_model("arrn", **defaults | options)


class Plain(nn.Module):
    """A network of a user, without anything that the library knows."""

    def __init__(self, stages: int = 2, shared: bool = False) -> None:
        super().__init__()
        again = nn.Conv2d(4, 4, 3, stride=2, padding=1)
        convolutions = [again if shared else nn.Conv2d(4, 4, 3, stride=2, padding=1) for _ in range(stages)]
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), *convolutions)
        self.classifier = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


def own_transplant(size: int = 16) -> ARRN:
    """What docs/transplanting.md tells to register: neither `policy` nor `num_classes` is an option."""
    return arrn.transplant(Plain(), size)


def edit(saved: Path, **changes: object) -> None:
    path = saved / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
