"""Convolutions with replicate padding, for 1 to 3 axes, in a form that every compiler takes."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from arrn.gpu import kernels_serve, replicate_depthwise


def replicate_pad(x: torch.Tensor, padding: list[int]) -> torch.Tensor:
    """Repeats the edge samples of `x`, shaped (batch, channels, *space).

    Args:
        padding: the samples to add, in the order of `torch.nn.functional.pad`: before and after the
            last axis, then the one before it.
    """
    if not torch.compiler.is_compiling():
        return F.pad(x, padding, mode="replicate")
    # The CPU backend of torch.compile (2.14) fails in the backward of F.pad with a stride assertion,
    # and eager F.pad is twice as fast as this: each form where it works best.
    for k in range(len(padding) // 2):
        axis = x.ndim - 1 - k
        before, after = padding[2 * k], padding[2 * k + 1]
        first, last = x.narrow(axis, 0, 1), x.narrow(axis, x.shape[axis] - 1, 1)
        x = torch.cat([first] * before + [x] + [last] * after, dim=axis)
    return x


class _ReplicatePadding:
    """What the three classes below share: torch's convolution calls `_conv_forward` to do its work."""

    _reversed_padding_repeated_twice: list[int]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    kernel_size: tuple[int, ...]
    padding: tuple[int, ...] | str
    in_channels: int
    out_channels: int

    @property
    def fits_kernel(self) -> bool:
        """Whether this is the depthwise 3x3 that a GPU has a kernel for (`arrn.gpu.replicate_depthwise`)."""
        return (
            self.kernel_size == (3, 3)
            and self.groups == self.in_channels == self.out_channels
            and self.stride == self.dilation == self.padding == (1, 1)
        )

    def _conv_forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if self.fits_kernel and weight.ndim == 4 and kernels_serve(x):
            if torch.is_autocast_enabled("cuda"):
                x = x.to(torch.get_autocast_dtype("cuda"))
            y: torch.Tensor = replicate_depthwise(x, weight, bias)
            return y
        convolve: Callable[..., torch.Tensor] = FUNCTIONAL_CONVOLUTIONS[weight.ndim - 2]
        padded = replicate_pad(x, self._reversed_padding_repeated_twice)
        return convolve(padded, weight, bias, self.stride, 0, self.dilation, self.groups)


class ReplicateConv1d(_ReplicatePadding, nn.Conv1d):
    """`torch.nn.Conv1d`, its padding filled with the edge samples: a constant stays constant."""


class ReplicateConv2d(_ReplicatePadding, nn.Conv2d):
    """`torch.nn.Conv2d`, its padding filled with the edge samples: a constant stays constant."""


class ReplicateConv3d(_ReplicatePadding, nn.Conv3d):
    """`torch.nn.Conv3d`, its padding filled with the edge samples: a constant stays constant."""


FUNCTIONAL_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
REPLICATE_CONVOLUTIONS = {1: ReplicateConv1d, 2: ReplicateConv2d, 3: ReplicateConv3d}
CHANNEL_DROPOUTS = {1: nn.Dropout1d, 2: nn.Dropout2d, 3: nn.Dropout3d}
BATCH_NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
