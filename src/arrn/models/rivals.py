"""Stronger rivals than the paper's: a ResNet for small images, one that switches its batch norms, a neural operator."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from arrn.errors import ArrnError
from arrn.models.fixed import (
    FixedOptions,
    FixedResolution,
    ResampledNetwork,
    fit_classes,
    replace_convolution,
    torchvision_network,
)
from arrn.models.registry import Options, takes
from arrn.nn.blocks import Head
from arrn.nn.network import Network, Policy, note_option
from arrn.signal.grid import Grid, Size, as_grid, as_ladder, check_device, check_signal, covers
from arrn.signal.kernels import KernelLike


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


@dataclass(frozen=True, kw_only=True)
class SmallStemOptions(FixedOptions):
    """What a ResNet with a stem for small images can be told.

    Attributes:
        width: channels of the first stage.
    """

    width: int = 64


@takes(SmallStemOptions())
def build_resnet18_small_stem(options: SmallStemOptions) -> FixedResolution:
    """ResNet18 with a stem for small images at one native size; inputs of other sizes are resampled to it."""
    network = small_stem_resnet18(options.num_classes, options.in_channels, options.width)
    return FixedResolution(network, options.size, options.in_channels, kernel=options.kernel)


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

    An input is taken to the lowest of `sizes` that holds it, and runs on this grid with the batch norms of
    this size. Train the network on all of its sizes.

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


@dataclass(frozen=True, kw_only=True)
class SwitchableOptions(Options):
    """What a network of several native sizes can be told.

    Attributes:
        sizes: its resolutions, highest first.
        width: channels of the first stage.
    """

    sizes: Sequence[Size] = (32, 24, 16, 12, 8)
    width: int = 64


@takes(SwitchableOptions())
def build_resnet18_switchable(options: SwitchableOptions) -> SwitchableNetwork:
    """ResNet18 with a stem for small images and private batch norms for each of its sizes."""
    network = small_stem_resnet18(options.num_classes, options.in_channels, options.width)
    return SwitchableNetwork(network, options.sizes, options.in_channels, options.kernel)


class SpectralConv2d(nn.Module):
    """Multiplies the lowest `modes` Fourier coefficients along each axis by learned complex matrices.

    Periodic, cell-centred grid. A grid that is too small for some of the modes leaves them out. A signal
    that two grids hold is treated alike on both.

    Shape: (batch, in_features, height, width) -> (batch, out_features, height, width).
    """

    def __init__(self, in_features: int, out_features: int, modes: int) -> None:
        super().__init__()
        if modes < 1:
            raise ArrnError(f"a spectral convolution needs at least 1 mode, got {modes}")
        self.in_features, self.out_features, self.modes = in_features, out_features, modes
        # Rows hold the frequencies -(modes - 1) ... modes - 1, columns 0 ... modes - 1; the last axis is
        # the real and the imaginary part, since not every file format holds complex numbers.
        self.weight = nn.Parameter(torch.empty(in_features, out_features, 2 * modes - 1, modes, 2))
        with torch.no_grad():
            self.weight.normal_().mul_((in_features * out_features) ** -0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height, width = x.shape[-2:]
        # Frequencies below half the grid: the Nyquist bin is ambiguous.
        rows, columns = min(self.modes, (height + 1) // 2), min(self.modes, (width + 1) // 2)
        wide = x if x.dtype == torch.float64 else x.float()  # there is no bf16 transform
        spectrum = torch.fft.rfft2(wide, norm="forward")
        kept = torch.cat([spectrum[..., height - rows + 1 :, :columns], spectrum[..., :rows, :columns]], dim=-2)
        middle = self.modes - 1
        weight = torch.view_as_complex(self.weight.to(wide.dtype))
        mixed = torch.einsum("bihw,iohw->bohw", kept, weight[:, :, middle - rows + 1 : middle + rows, :columns])
        whole = mixed.new_zeros(*mixed.shape[:2], height, width // 2 + 1)
        whole[..., height - rows + 1 :, :columns] = mixed[..., : rows - 1, :]
        whole[..., :rows, :columns] = mixed[..., rows - 1 :, :]
        answer: torch.Tensor = torch.fft.irfft2(whole, s=(height, width), norm="forward")
        return answer.to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.in_features} -> {self.out_features}, modes={self.modes}"


class FourierLayer(nn.Module):
    """Spectral plus pointwise convolution, batch norm, and a GELU, around a skip connection.

    Shape: (batch, features, height, width), unchanged.
    """

    def __init__(self, features: int, modes: int) -> None:
        super().__init__()
        self.spectral = SpectralConv2d(features, features, modes)
        self.pointwise = nn.Conv2d(features, features, 1, bias=False)
        self.norm = nn.BatchNorm2d(features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + nn.functional.gelu(self.norm(self.spectral(x) + self.pointwise(x)))


class FourierClassifier(Network):
    """Lifts the channels, applies Fourier layers on the input's own grid, pools and classifies.

    Shape: (batch, in_channels, height, width), any size -> (batch, num_classes).
    """

    def __init__(
        self,
        *,
        size: Size,
        features: int,
        modes: int,
        depth: int,
        num_classes: int,
        in_channels: int,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.grids = (as_grid(size, 2),)
        self.in_channels = in_channels
        self.lift = nn.Conv2d(in_channels, features, 1)
        self.layers = nn.Sequential(*(FourierLayer(features, modes) for _ in range(depth)))
        self.head = Head(features, num_classes, dropout)

    @property
    def num_classes(self) -> int:
        """The classes that it tells apart; 0 when it returns features."""
        return self.head.num_classes

    def entry_grid(self, size: Grid, policy: Policy | None = None, adapt: bool = True) -> Grid:
        """The input's own grid, as it is, unless that is larger than the one of training."""
        return size if covers(self.grids[0], size) else self.grids[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_signal(x, 2, self.in_channels)
        check_device(x, self.lift.weight)
        logits: torch.Tensor = self.head(self.layers(self.lift(x)))
        return logits

    def reset_classifier(self, num_classes: int) -> None:
        """A new classifier for `num_classes` classes; with 0 pooled features come out."""
        self.head.reset_classifier(num_classes)
        self.head.to(device=self.lift.weight.device, dtype=self.lift.weight.dtype)
        note_option(self, "num_classes", num_classes)


def build_fourier_operator(
    *,
    size: Size = 32,
    features: int = 64,
    modes: int = 8,
    depth: int = 4,
    num_classes: int = 10,
    in_channels: int = 3,
) -> FourierClassifier:
    """A Fourier neural operator classifier; `size` is the resolution it is trained at.

    Args:
        size: the resolution of training; it runs at any.
        features: channels of the hidden layers.
        modes: frequencies kept along each axis.
        depth: number of Fourier layers.
        num_classes: outputs; 0 returns features.
        in_channels: channels of the input.
    """
    return FourierClassifier(
        size=size, features=features, modes=modes, depth=depth, num_classes=num_classes, in_channels=in_channels
    )
