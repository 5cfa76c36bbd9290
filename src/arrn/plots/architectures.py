"""What networks that are no ARRNs are called in figures."""

from __future__ import annotations

__all__ = ["ARCHITECTURES"]

ARCHITECTURES = {
    "resnet18": ("ResNet18", "resnet", 0),
    "resnet50": ("ResNet50", "resnet", 1),
    "resnet101": ("ResNet101", "resnet", 2),
    "wide_resnet50_2": ("WideResNet50V2", "wide_resnet", 0),
    "wide_resnet101_2": ("WideResNet101V2", "wide_resnet", 1),
    "mobilenet_v3_small": ("MobileNetV3Small", "mobilenet", 0),
    "mobilenet_v3_large": ("MobileNetV3Large", "mobilenet", 1),
    "efficientnet_v2_s": ("EfficientNetV2S", "efficientnet", 0),
    "efficientnet_v2_m": ("EfficientNetV2M", "efficientnet", 1),
    "efficientnet_v2_l": ("EfficientNetV2L", "efficientnet", 2),
    "resnet18_small_stem": ("ResNet18, small stem", "resnet", 3),
    "resnet18_switchable": ("ResNet18, switchable", "switchable", 0),
    "fourier_operator": ("Fourier operator", "fourier", 0),
}
"""Of every network that is no ARRN: its title, its family and its number in the family."""
