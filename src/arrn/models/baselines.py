"""The paper's fixed-resolution baselines: ten architectures of torchvision, without pretrained weights."""

from __future__ import annotations

from torch import nn

from arrn.errors import ArrnError
from arrn.models.fixed import fit_channels, fit_classes

__all__ = ["BASELINES", "torchvision_network"]

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


def torchvision_network(name: str, num_classes: int, in_channels: int) -> nn.Module:
    """The bare torchvision network, randomly initialised."""
    try:
        from torchvision.models import get_model
    except ImportError as error:
        raise ArrnError(
            f"{name!r} comes from torchvision, which cannot be imported ({error}): install arrn[train]"
        ) from error
    if num_classes < 0 or in_channels < 1:
        raise ArrnError(f"num_classes must be 0 or more and in_channels 1 or more, got {num_classes} and {in_channels}")
    network: nn.Module = get_model(name, weights=None, num_classes=max(1, num_classes))
    fit_channels(network, in_channels)
    if num_classes == 0:
        fit_classes(network, 0)
    return network
