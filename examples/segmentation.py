"""A segmentation head on an adaptive backbone, trained at 64x64, at full, half and quarter resolution.

Each scene is made of photographs of animals (birds, cats, ...) and of vehicles (ships, trucks, ...), four of each side
by side, and a random curve that cuts between them. The mask of what is animal is therefore known to the pixel. The
photographs are those of CIFAR-10 that ship with the package; the scenes for the test are made of others than those for
training. The head is torchvision's feature pyramid with one convolution.

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

SIZE = 64
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
    """Scenes of animals and vehicles, as many as are asked for.

    Args:
        photographs: CIFAR-10's, or others of its classes that are 32x32.
        seed: of all that is random.
    """

    def __init__(self, photographs: Source, seed: int) -> None:
        names = photographs.class_names
        images = torch.stack([photographs.read(n) for n in range(len(photographs))])
        vehicle = torch.tensor([names[label] in VEHICLES for label in photographs.labels.tolist()])
        self.images = [images[vehicle], images[~vehicle]]
        self.generator = torch.Generator().manual_seed(seed)

    def make(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Images of shape (count, 3, 64, 64), uint8, and masks of shape (count, 64, 64): 1 where there is an animal."""
        vehicles, animals = (self._mosaics(images, count) for images in self.images)
        waves = torch.randn(count, 1, 4, 4, generator=self.generator)  # of which a curve is where they cross zero
        mask = resample(waves, SIZE)[:, 0] > 0
        return torch.where(mask[:, None], animals, vehicles), mask.long()

    def _mosaics(self, images: torch.Tensor, count: int) -> torch.Tensor:
        """Four photographs side by side, moved around at random."""
        chosen = images[torch.randint(len(images), (count, 4), generator=self.generator)]
        mosaics = torch.cat([torch.cat([*pair], -1) for pair in (chosen[:, :2].unbind(1), chosen[:, 2:].unbind(1))], -2)
        moves = torch.randint(SIZE, (count, 2), generator=self.generator).tolist()
        return torch.stack([each.roll(move, (1, 2)) for each, move in zip(mosaics, moves, strict=True)])


def train(model: Segmenter, scenes: Scenes, steps: int, batch: int = 32) -> None:
    """Trains on fresh scenes, half of which are mirrored."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    model.train()
    for _ in range(steps):
        images, masks = scenes.make(batch)
        loss = F.cross_entropy(model(model.backbone.metadata.normalise(images)), masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()


@torch.no_grad()
def intersection_over_union(model: Segmenter, images: torch.Tensor, masks: torch.Tensor, size: int) -> float:
    """Of animals and vehicles, the mean, where the images are smoothed down to `size`; masks keep their resolution."""
    parts = (model.backbone.metadata.normalise(part) for part in images.split(100))
    answers = torch.cat([model(resample(part, size)).argmax(1) for part in parts])
    shares = [((answers == n) & (masks == n)).sum() / ((answers == n) | (masks == n)).sum() for n in (0, 1)]
    return float(sum(shares) / 2)


def main(steps: int = 400, tested: int = 500) -> dict[str, dict[int, float]]:
    """Trains with and without Laplacian dropout, and segments at three resolutions.

    Returns:
        The mean intersection over union, by the training and the size.
    """
    data = open_dataset("sample")
    assert data.test is not None
    images, masks = Scenes(data.test, seed=1).make(tested)
    shares: dict[str, dict[int, float]] = {}
    for title, dropout in (("with Laplacian dropout", 0.6), ("without", 0.0)):
        torch.manual_seed(0)
        backbone = arrn.create_backbone("arrn_mini", sizes=(64, 32, 16, 8), dropout=dropout)
        backbone.metadata = arrn.metadata.Metadata(mean=data.mean, std=data.std)
        model = Segmenter(backbone, classes=2, size=SIZE)
        began = time.perf_counter()
        train(model, Scenes(data.train, seed=0), steps)
        print(f"{title}: {time.perf_counter() - began:.0f} s of training")
        shares[title] = {size: intersection_over_union(model, images, masks, size) for size in (64, 32, 16)}
        for size, share in shares[title].items():
            print(f"  {size}x{size}: mean intersection over union {share:.1%}")
    return shares


if __name__ == "__main__":
    main()
