"""A segmentation head on an adaptive backbone, trained at 32x32, at full, half and quarter resolution.

Each scene is a photograph of a vehicle (a ship, a truck, ...) into which a photograph of an animal (a bird, a cat, ...)
is pasted along a random curve, so that the mask of what is animal is known to the pixel. The photographs are the
images of CIFAR-10 that ship with the package; scenes for testing and for training are made of different photographs.
The head is torchvision's feature pyramid with one convolution.

python examples/segmentation.py
"""
# ruff: noqa: T201

from __future__ import annotations

import time
from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.ops import FeaturePyramidNetwork

import arrn
from arrn.data import Source, open_dataset
from arrn.nn import Backbone
from arrn.signal import resample

SIZE = 32
SIZES = (32, 16, 8)
VEHICLES = {"airplane", "automobile", "ship", "truck"}


class Segmenter(nn.Module):
    """A backbone, a feature pyramid over its maps, and one convolution on the finest.

    Shape: (batch, channels, *any) -> (batch, classes, *size).
    """

    def __init__(self, backbone: Backbone, classes: int, size: int, width: int = 32) -> None:
        super().__init__()
        self.backbone, self.size = backbone, size
        self.pyramid = FeaturePyramidNetwork(backbone.feature_info.channels(), width, norm_layer=nn.BatchNorm2d)
        self.classify = nn.Sequential(nn.ReLU(), nn.Conv2d(width, classes, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = OrderedDict((str(n), features) for n, features in enumerate(self.backbone(x)))
        logits: torch.Tensor = self.classify(self.pyramid(maps)["0"])
        return resample(logits, self.size)


class Scenes:
    """Scenes of vehicles and animals, as many as are asked for.

    Args:
        photographs: CIFAR-10's.
        seed: of all that is random.
    """

    def __init__(self, photographs: Source, seed: int) -> None:
        names = photographs.class_names
        images = torch.stack([photographs.read(n) for n in range(len(photographs))])
        vehicle = torch.tensor([names[label] in VEHICLES for label in photographs.labels.tolist()])
        self.vehicles, self.animals = images[vehicle], images[~vehicle]
        self.generator = torch.Generator().manual_seed(seed)

    def make(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Images of shape (count, 3, 32, 32), uint8, and masks of shape (count, 32, 32): 1 where there is an animal."""
        vehicles, animals = (
            images[torch.randint(len(images), (count,), generator=self.generator)]
            for images in (self.vehicles, self.animals)
        )
        waves = resample(torch.randn(count, 1, 3, 3, generator=self.generator), SIZE)  # the curve is where they are 0
        return torch.where(waves > 0, animals, vehicles), (waves[:, 0] > 0).long()


def train(model: Segmenter, scenes: Scenes, steps: int, batch: int = 64) -> None:
    """Trains on fresh scenes, half of which are mirrored."""
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=steps)
    model.train()
    for step in range(steps):
        images, masks = (x.flip(-1) if step % 2 else x for x in scenes.make(batch))
        loss = F.cross_entropy(model(model.backbone.metadata.normalise(images)), masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()


@torch.no_grad()
def intersection_over_union(answers: torch.Tensor, masks: torch.Tensor) -> float:
    """The mean of that of vehicles and that of animals."""
    shares = [((answers == n) & (masks == n)).sum() / ((answers == n) | (masks == n)).sum() for n in (0, 1)]
    return float(sum(shares) / 2)


def main(steps: int = 600, tested: int = 1000) -> dict[str, dict[int, float]]:
    """Trains with and without Laplacian dropout, and segments images of three resolutions; masks keep theirs.

    Returns:
        The mean intersection over union, by the training and the size.
    """
    data = open_dataset("sample")
    assert data.test is not None
    images, masks = Scenes(data.test, seed=1).make(tested)
    shares: dict[str, dict[int, float]] = {}
    for title, dropout in (("with Laplacian dropout", 0.5), ("without", 0.0)):
        torch.manual_seed(0)
        backbone = arrn.create_backbone("arrn_pyramid", width=16, dropout=dropout)
        backbone.metadata = arrn.metadata.Metadata(mean=data.mean, std=data.std)
        model = Segmenter(backbone, classes=2, size=SIZE)
        began = time.perf_counter()
        train(model, Scenes(data.train, seed=0), steps)
        print(f"{title}: {time.perf_counter() - began:.0f} s of training")
        x = backbone.metadata.normalise(images)
        with torch.no_grad():
            answers = {size: model(resample(x, size)).argmax(1) for size in SIZES}
        shares[title] = {size: intersection_over_union(answers[size], masks) for size in SIZES}
    for title, by_size in shares.items():
        print(f"{title:24}", *(f"{size}x{size}: {share:.1%} " for size, share in by_size.items()))
    return shares


if __name__ == "__main__":
    main()
