"""The fixed-resolution baselines: ordinary networks, whose inputs are brought to the size they were made for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from arrn.errors import ArrnError, needs
from arrn.models.registry import Options, takes
from arrn.nn.network import Network, note_option
from arrn.signal.grid import Grid, Size, as_grid, check_device, check_signal, format_grid, level_at_least
from arrn.signal.kernels import Kernel, KernelLike
from arrn.signal.kernels import kernel as as_kernel
from arrn.signal.resample import resample_in_network


class ResampledNetwork(Network):
    """Takes an input of any size to the lowest of its grids that holds it, and runs the network there.

    Shape: (batch, in_channels, *any) -> (batch, num_classes).
    """

    def __init__(self, network: nn.Module, grids: tuple[Grid, ...], in_channels: int, kernel: KernelLike) -> None:
        super().__init__()
        self.network = network
        self.grids = grids
        self.in_channels = in_channels
        self.kernel: Kernel = as_kernel(kernel)

    @property
    def num_classes(self) -> int:
        """The classes that its last linear layer tells apart; 0 where there is none."""
        return count_classes(self.network)

    @property
    def grids_for_all_parts(self) -> tuple[Grid, ...]:
        """All of them: each may have parts of its own, such as batch norms."""
        return self.grids

    def _prepare(self, level: int) -> None:
        """Called before the network runs at `level`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        level = level_at_least(self.grids, check_signal(x, len(self.grids[0]), self.in_channels))
        if (weight := next(self.network.parameters(), None)) is not None:
            check_device(x, weight)
        self._prepare(level)
        answer: torch.Tensor = self.network(resample_in_network(x, self.grids[level], self.kernel))
        return answer

    def reset_classifier(self, num_classes: int) -> None:
        """A new last layer for `num_classes` classes; 0 leaves it out, so that features come out."""
        fit_classes(self.network, num_classes)
        note_option(self, "num_classes", num_classes)

    def extra_repr(self) -> str:
        return f"runs at {', '.join(map(format_grid, self.grids))}, {self.kernel.name}/{self.kernel.boundary}"


class FixedResolution(ResampledNetwork):
    """An ordinary network: any input is interpolated (or smoothed) to the one size it was trained at.

    Args:
        network: takes (batch, in_channels, *size) to (batch, num_classes).
        size: the native size, that of training.
        in_channels: channels of the input.
        ndim: axes of space.
        kernel: how inputs of other sizes are resampled.

    Shape: (batch, in_channels, *any) -> (batch, num_classes).
    """

    def __init__(
        self, network: nn.Module, size: Size, in_channels: int = 3, ndim: int = 2, kernel: KernelLike = "perfect"
    ) -> None:
        super().__init__(network, (as_grid(size, ndim),), in_channels, kernel)


BASELINES = (
    "resnet18",
    "resnet50",
    "resnet101",
    "wide_resnet50_2",
    "wide_resnet101_2",
    "mobilenet_v3_small",
    "mobilenet_v3_large",
    "efficientnet_v2_s",
    "efficientnet_v2_m",
    "efficientnet_v2_l",
)


@dataclass(frozen=True, kw_only=True)
class FixedOptions(Options):
    """What a network of one native size can be told.

    Attributes:
        size: the native size; inputs of other sizes are resampled to it.
    """

    size: Size = 32


def fixed_builder(name: str) -> Callable[..., FixedResolution]:
    """A builder for the registry: torchvision's network of that name, randomly initialised."""

    @takes(FixedOptions())
    def build(options: FixedOptions) -> FixedResolution:
        network = torchvision_network(name, options.num_classes, options.in_channels)
        return FixedResolution(network, options.size, options.in_channels, kernel=options.kernel)

    build.__doc__ = f"torchvision's {name} at one native size; inputs of other sizes are resampled to it."
    return build


def torchvision_network(name: str, num_classes: int, in_channels: int) -> nn.Module:
    """The bare torchvision network, randomly initialised."""
    with needs("torchvision", f"model {name!r}"):
        from torchvision.models import get_model
    if num_classes < 0 or in_channels < 1:
        raise ArrnError(f"num_classes must be 0 or more and in_channels 1 or more, got {num_classes} and {in_channels}")
    network: nn.Module = get_model(name, weights=None, num_classes=max(1, num_classes))
    fit_channels(network, in_channels)
    if num_classes == 0:
        fit_classes(network, 0)
    return network


def fit_channels(network: nn.Module, in_channels: int) -> None:
    """Replaces the first convolution by one that takes `in_channels`, if it does not already."""
    name, first = next((n, m) for n, m in network.named_modules() if isinstance(m, nn.Conv2d))
    if first.in_channels != in_channels:
        fresh = copy.deepcopy(first)
        fresh.in_channels = in_channels
        fresh.weight = nn.Parameter(first.weight.new_empty(first.out_channels, in_channels, *first.kernel_size))
        replace_convolution(network, name, fresh)


def replace_convolution(network: nn.Module, name: str, fresh: nn.Conv2d) -> None:
    """Puts `fresh` in the place of a convolution, initialised as torchvision's networks initialise theirs."""
    nn.init.kaiming_normal_(fresh.weight, mode="fan_out", nonlinearity="relu")
    network.set_submodule(name, fresh)


def fit_classes(network: nn.Module, num_classes: int) -> None:
    """Replaces the last linear layer, or what stands in its place, by one for `num_classes` (0: none)."""
    if num_classes < 0:
        raise ArrnError(f"num_classes must be 0 (features) or more, got {num_classes}")
    name, last = _last_layer(network)
    if last is None:
        raise ArrnError(f"a {type(network).__name__} without a linear layer has no classifier to replace")
    features = last.in_features
    biased = not isinstance(last, nn.Linear) or last.bias is not None
    layer = nn.Linear(features, num_classes, bias=biased) if num_classes else _Features(features)
    weight = next(network.parameters(), None)
    if weight is not None:
        layer.to(device=weight.device, dtype=weight.dtype)
    network.set_submodule(name, layer)


def count_classes(network: nn.Module) -> int:
    """The classes that the last linear layer tells apart; 0 where there is none."""
    _, last = _last_layer(network)
    return last.out_features if isinstance(last, nn.Linear) else 0


def _last_layer(network: nn.Module) -> tuple[str, nn.Linear | _Features | None]:
    found = [(n, m) for n, m in network.named_modules() if isinstance(m, nn.Linear | _Features)]
    return found[-1] if found else ("", None)


class _Features(nn.Identity):
    """Where the classifier was; remembers how many features arrive, so that one can be put back."""

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.in_features = in_features
