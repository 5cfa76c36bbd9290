"""Small networks to transplant."""

import torch
import torch.nn.functional as F
from torch import nn


def layer(features: int, out: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(features, out, 3, stride, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)
    )


def plain(classes: int = 5) -> nn.Sequential:
    """A stem at full resolution, three strides, a pooling head."""
    return nn.Sequential(
        layer(3, 6), layer(6, 8, 2), layer(8, 8), layer(8, 12, 2), layer(12, 16, 2), layer(16, 16),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, classes),
    )  # fmt: skip


class Skipping(nn.Module):
    """Everything functional: skip connections across strides, squeeze-excite, sizes read early, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(8, 8, 3, 2, padding=1) for _ in range(3))
        self.shortcuts = nn.ModuleList(nn.Conv2d(8, 8, 1, 2) for _ in range(3))
        self.gate = nn.Linear(8, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        batch, _, _, _ = x.shape
        x = F.relu(self.stem(x), inplace=True) * scale
        for norm, conv, shortcut in zip(self.norms, self.convs, self.shortcuts, strict=True):
            y = F.relu(norm(conv(x)))
            y = F.avg_pool2d(y, 3, 1, 1)
            y = F.dropout(y, 0.3, training=self.training)
            y = y * torch.sigmoid(self.gate(y.mean((2, 3))))[:, :, None, None]
            x = torch.add(shortcut(x), y)
        x = F.adaptive_avg_pool2d(x, 1).view(batch, -1)
        return self.head(F.dropout(x, 0.5, self.training))


class Positioned(nn.Module):
    """A position embedding at half resolution, in the middle of a network that is fine otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([layer(3, 4, 2), layer(4, 4, 2), layer(4, 4, 2), layer(4, 4, 2)])
        self.position = nn.Parameter(torch.randn(1, 4, 8, 8))

    def forward(self, x: torch.Tensor, fixed: bool = True) -> torch.Tensor:
        x = self.layers[1](self.layers[0](x))
        position = self.position if fixed else nn.functional.interpolate(self.position, x.shape[2:])
        return self.layers[3](self.layers[2](x + position)).mean((2, 3))


class Resized(Positioned):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x, fixed=False)


class Unit(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / x.norm(dim=1, keepdim=True)
