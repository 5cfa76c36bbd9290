"""Transplants by name: the paper's seven architectures, from torchvision."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from arrn.models.baselines import torchvision_network
from arrn.models.transplanting.transplant import transplant
from arrn.nn.arrn import ARRN, Policy
from arrn.nn.dropout import Draw
from arrn.signal.grid import Size
from arrn.signal.kernels import KernelLike

__all__ = ["TRANSPLANTS", "transplant_builder"]

TRANSPLANTS = {
    "resnet18": 0,
    "resnet50": 0,
    "resnet101": 0,
    "wide_resnet50_2": 0,
    "wide_resnet101_2": 0,
    "mobilenet_v3_small": 2,
    "mobilenet_v3_large": 2,
}
"""Each architecture and how many of its first residuals the paper discards."""


def transplant_builder(name: str, skip_first: int) -> Callable[..., ARRN]:
    """A builder for the registry: torchvision's `name`, randomly initialised, transplanted."""

    def build(
        size: Size = 32,
        num_classes: int = 10,
        in_channels: int = 3,
        kernel: KernelLike = "perfect",
        dropout: float | Sequence[float] = 0.0,
        draw: Draw = "stratified",
        policy: Policy = "exact",
        skip_first: int = skip_first,
    ) -> ARRN:
        return transplant(
            torchvision_network(name, num_classes, in_channels),
            size,
            in_channels=in_channels,
            skip_first=skip_first,
            kernel=kernel,
            dropout=dropout,
            draw=draw,
            policy=policy,
            check=False,  # tests do; here it would take longer than all the rest, at each load too
        )

    build.__doc__ = f"""torchvision's {name} as an ARRN, see `arrn.transplant`.

    Args:
        size: the highest resolution.
        num_classes: outputs; 0 returns features.
        in_channels: channels of the input.
        kernel: the smoothing kernel or its name.
        dropout: Laplacian dropout's p, one number or one per residual.
        draw: how Laplacian dropout draws.
        policy: the level for sizes between two grids.
        skip_first: how many of the first residuals are discarded.
    """
    return build
