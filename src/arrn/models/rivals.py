"""Stronger rivals than the paper's: a ResNet for small images, and one that switches its batch norms."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn

from arrn.errors import ArrnError
from arrn.models.baselines import torchvision_network
from arrn.models.fixed import FixedResolution, ResampledNetwork, fit_classes, replace_convolution
from arrn.signal.grid import Size, as_ladder
from arrn.signal.kernels import KernelLike

__all__ = [
    "SwitchableBatchNorm2d",
    "SwitchableNetwork",
    "build_resnet18_small_stem",
    "build_resnet18_switchable",
    "small_stem_resnet18",
]


def small_stem_resnet18(num_classes: int, in_channels: int, width: int = 64) -> nn.Module:
    """ResNet18 whose first convolution is 3x3 with stride 1, without the pooling after it.

    The ImageNet stem throws away three quarters of a 32x32 image twice before the first block.

    Args:
        num_classes: outputs; 0 returns features.
        in_channels: channels of the input.
        width: channels of the first stage, 64 in torchvision's; each stage has twice those before it.
    """
    if width < 1:
        raise ArrnError(f"a ResNet's width must be at least 1, got {width}")
    network = torchvision_network("resnet18", num_classes, in_channels)
    replace_convolution(network, "conv1", nn.Conv2d(in_channels, 64, 3, padding=1, bias=False))
    network.set_submodule("maxpool", nn.Identity())
    if width != 64:
        _scale_channels(network, in_channels, num_classes, width / 64)
    return network


def _scale_channels(network: nn.Module, in_channels: int, num_classes: int, factor: float) -> None:
    """Gives every layer of a ResNet `factor` times its channels, but for the input's and the classes."""

    def scaled(channels: int) -> int:
        return round(channels * factor)

    for name, layer in list(network.named_modules()):
        if isinstance(layer, nn.Conv2d):
            fresh = copy.deepcopy(layer)
            fresh.in_channels = in_channels if name == "conv1" else scaled(layer.in_channels)
            fresh.out_channels = scaled(layer.out_channels)
            fresh.weight = nn.Parameter(
                layer.weight.new_empty(fresh.out_channels, fresh.in_channels, *layer.kernel_size)
            )
            replace_convolution(network, name, fresh)
        elif isinstance(layer, nn.BatchNorm2d):
            network.set_submodule(name, nn.BatchNorm2d(scaled(layer.num_features)))
    network.set_submodule("fc", nn.Linear(scaled(512), max(1, num_classes)))
    if num_classes == 0:
        fit_classes(network, 0)


def build_resnet18_small_stem(
    size: Size = 32, num_classes: int = 10, in_channels: int = 3, kernel: KernelLike = "perfect", width: int = 64
) -> FixedResolution:
    """ResNet18 with a stem for small images at one native size; inputs of other sizes are resampled to it.

    Args:
        size: the native size.
        num_classes: outputs; 0 returns features.
        in_channels: channels of the input.
        kernel: how inputs of other sizes are resampled.
        width: channels of the first stage.
    """
    return FixedResolution(small_stem_resnet18(num_classes, in_channels, width), size, in_channels, kernel=kernel)


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
