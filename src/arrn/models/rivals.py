"""Stronger rivals than the paper's: a ResNet for small images, and one that switches its batch norms."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from arrn.models.baselines import torchvision_network
from arrn.models.fixed import ResampledNetwork, replace_convolution
from arrn.signal.grid import Size, as_ladder
from arrn.signal.kernels import KernelLike

__all__ = ["SwitchableBatchNorm2d", "SwitchableNetwork", "build_resnet18_switchable", "small_stem_resnet18"]


def small_stem_resnet18(num_classes: int, in_channels: int) -> nn.Module:
    """torchvision's ResNet18 whose first convolution is 3x3 with stride 1, without the pooling after it.

    The ImageNet stem throws away three quarters of a 32x32 image twice before the first block.
    """
    network = torchvision_network("resnet18", num_classes, in_channels)
    replace_convolution(network, "conv1", nn.Conv2d(in_channels, 64, 3, padding=1, bias=False))
    network.set_submodule("maxpool", nn.Identity())
    return network


class SwitchableBatchNorm2d(nn.Module):
    """One batch norm for each of several resolutions; the one in use is chosen from outside.

    Shape: (batch, features, height, width), unchanged.
    """

    def __init__(self, features: int, count: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(features) for _ in range(count))
        self.chosen = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normalised: torch.Tensor = self.norms[self.chosen](x)
        return normalised


class SwitchableNetwork(ResampledNetwork):
    """Shared convolutions, private batch norms per resolution, as in Resolution Switchable Networks
    (Wang et al., ECCV 2020).

    An input is taken to the lowest of `sizes` that holds it and runs there, on as few samples, with
    that size's own batch norms. Train it on all of its sizes.

    Args:
        network: a convolutional network that takes any size; its batch norms are replaced.
        sizes: the resolutions, highest first.
        in_channels: channels of the input.
        kernel: how inputs are resampled to one of the sizes.

    Shape: (batch, in_channels, height, width) -> (batch, num_classes).
    """

    def __init__(
        self, network: nn.Module, sizes: Sequence[Size], in_channels: int = 3, kernel: KernelLike = "perfect"
    ) -> None:
        super().__init__(network, as_ladder(sizes, 2), in_channels, kernel)
        for name, module in list(network.named_modules()):
            if isinstance(module, nn.BatchNorm2d):
                network.set_submodule(name, SwitchableBatchNorm2d(module.num_features, len(self.grids)))

    def _prepare(self, level: int) -> None:
        for module in self.network.modules():
            if isinstance(module, SwitchableBatchNorm2d):
                module.chosen = level


def build_resnet18_switchable(
    sizes: Sequence[Size] = (32, 24, 16, 12, 8),
    num_classes: int = 10,
    in_channels: int = 3,
    kernel: KernelLike = "perfect",
) -> SwitchableNetwork:
    """ResNet18 with a stem for small images and private batch norms for each of `sizes`."""
    return SwitchableNetwork(small_stem_resnet18(num_classes, in_channels), sizes, in_channels, kernel)
