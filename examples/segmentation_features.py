"""Features of every level for a segmentation head: `forward_levels` of an adaptive backbone.

The head maps the features of each level to classes, brings the maps to the input's size, and adds them. A smaller
input skips the upper levels, and the head adds fewer maps: one network segments at every resolution. The task is
to find a bright disc under noise.

python examples/segmentation_features.py
"""
# ruff: noqa: T201

from __future__ import annotations

import torch
from torch import nn

import arrn
from arrn.nn import ARRN, Projection
from arrn.signal import resample


class SegmentationHead(nn.Module):
    """One map of classes per level, added at the input's size.

    Shape: features of the levels, and a size -> (batch, classes, *size).
    """

    def __init__(self, widths: list[int], classes: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList(Projection(width, classes) for width in widths)

    def forward(self, levels: list[torch.Tensor], size: tuple[int, ...]) -> torch.Tensor:
        maps = list(self.maps)[-len(levels) :]  # skipped levels are the first ones
        whole = [resample(to_classes(features), size) for to_classes, features in zip(maps, levels, strict=True)]
        return torch.stack(whole).sum(0)


class Segmenter(nn.Module):
    """An adaptive backbone and a head on the features of its levels.

    Shape: (batch, channels, *any) -> (batch, classes, *any).
    """

    def __init__(self, backbone: ARRN, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        received = [*(residual.in_features for residual in backbone.levels), backbone.levels[-1].out_features]
        with torch.no_grad():
            given = backbone.eval().forward_features(torch.zeros(1, backbone.in_channels, *backbone.grids[-1])).shape[1]
        self.head = SegmentationHead([*received, given], classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.backbone.forward_levels(x), tuple(x.shape[2:]))
        return logits


def discs(count: int, size: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of shape (count, 1, size, size), and which pixels lie in the disc."""
    centre = 0.25 + 0.5 * torch.rand(count, 2, 1, 1, generator=generator)
    radius = 0.1 + 0.15 * torch.rand(count, 1, 1, generator=generator)
    axis = (torch.arange(size) + 0.5) / size
    inside = (axis - centre[:, 0]) ** 2 + (axis[:, None] - centre[:, 1]) ** 2 < radius**2
    return (inside + 0.5 * torch.randn(inside.shape, generator=generator)).unsqueeze(1), inside.long()


def layer(features: int, out: int) -> nn.Sequential:
    """A layer that halves the resolution."""
    return nn.Sequential(nn.Conv2d(features, out, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU())


def main(steps: int = 60) -> dict[int, float]:
    """Trains at 32x32, with Laplacian dropout, and segments at three resolutions.

    Returns:
        The share of pixels that are right, at each size.
    """
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    backbone = arrn.transplant(nn.Sequential(layer(1, 16), layer(16, 32), layer(32, 32)), size=32, dropout=0.3)
    model = Segmenter(backbone, classes=2).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        x, inside = discs(32, 32, generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), inside).backward()
        optimizer.step()
    model.eval()
    shares = {}
    with torch.no_grad():
        for size in (32, 16, 8):
            x, inside = discs(256, size, torch.Generator().manual_seed(1))
            shares[size] = float((model(x).argmax(1) == inside).float().mean())
            used = len(backbone.forward_levels(x))
            print(f"{size:3}x{size:<3} {used} feature maps, {shares[size]:.1%} of the pixels right")
            print(f"        (all background: {float((inside == 0).float().mean()):.1%})")
    return shares


if __name__ == "__main__":
    main()
