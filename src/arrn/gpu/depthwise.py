"""Depthwise 3x3 convolution with replicate padding as an operator, `arrn::replicate_depthwise`, and with SiLU around.

On a GPU it is a Triton kernel that reads each sample about once and makes no padded copy; elsewhere it is PyTorch's
padding and convolution, which is also what the kernel is tested against. It has a shape function and a gradient of
its own, so `torch.compile` and CUDA graphs take it as they take PyTorch's operators.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from arrn.gpu.switch import as_precise_as
from arrn.signal.operators import channels_first, channels_last


def reference_depthwise(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """PyTorch's own: pad a copy, convolve it."""
    return F.conv2d(F.pad(x, [1, 1, 1, 1], mode="replicate"), weight, bias, groups=x.shape[1])


@torch.library.custom_op("arrn::replicate_depthwise", mutates_args=())
def replicate_depthwise(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Depthwise 3x3 convolution, stride 1, borders repeated.

    Args:
        x: shape (batch, channels, height, width).
        weight: shape (channels, 1, 3, 3).
        bias: shape (channels,), or None.

    Returns:
        The shape and dtype of `x`, in channels-last memory.

    >>> x, weight = torch.ones(1, 4, 5, 7), torch.ones(4, 1, 3, 3)
    >>> bool((replicate_depthwise(x, weight, None) == 9).all())
    True
    """
    with as_precise_as(x):
        y = reference_depthwise(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))
    return y.contiguous(memory_format=torch.channels_last)


@replicate_depthwise.register_kernel("cuda")
def _forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    from arrn.gpu.depthwise_launch import depthwise_forward  # Triton is not everywhere

    return channels_first(depthwise_forward(channels_last(x), weight, bias)[0])


@replicate_depthwise.register_fake
def _forward_shape(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.channels_last)


@torch.library.custom_op("arrn::replicate_depthwise_backward", mutates_args=())
def replicate_depthwise_backward(
    gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of `replicate_depthwise` by its input and its weight."""
    border = [1, 1, 1, 1]
    padded, taps, ones = F.pad(x, border, mode="replicate"), weight.to(x.dtype), [1, 1]
    by_padded, by_weight, _ = torch.ops.aten.convolution_backward(
        gradient, padded, taps, None, ones, [0, 0], ones, False, [0, 0], x.shape[1], [True, True, False]
    )
    by_input = torch.ops.aten.replication_pad2d_backward(by_padded, x, border)
    return by_input.contiguous(memory_format=torch.channels_last), by_weight.to(weight.dtype).contiguous()


@replicate_depthwise_backward.register_kernel("cuda")
def _backward(gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    from arrn.gpu.depthwise_launch import depthwise_backward

    by_input, by_weight, _ = depthwise_backward(channels_last(gradient), weight, channels_last(x))
    return channels_first(by_input), by_weight.to(weight.dtype)


@replicate_depthwise_backward.register_fake
def _backward_shape(gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    by_input = torch.empty_like(x, memory_format=torch.channels_last)
    return by_input, torch.empty_like(weight, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight)


def _differentiate(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    x, weight = ctx.saved_tensors
    by_input, by_weight = replicate_depthwise_backward(gradient, x, weight)
    by_bias = gradient.sum(dim=(0, 2, 3), dtype=weight.dtype) if ctx.needs_input_grad[2] else None
    return by_input, by_weight, by_bias


replicate_depthwise.register_autograd(_differentiate, setup_context=_keep)


def cast_depthwise(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """`replicate_depthwise` in the dtype that autocast asks for on a GPU."""
    if torch.is_autocast_enabled("cuda"):
        x = x.to(torch.get_autocast_dtype("cuda"))
    y: torch.Tensor = replicate_depthwise(x, weight, bias)
    return y


@torch.library.custom_op("arrn::silu_depthwise_silu", mutates_args=())
def silu_depthwise_silu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """`replicate_depthwise` with SiLU before and after it, in one pass; for inference, so it has no gradient.

    Shapes are those of `replicate_depthwise`.

    >>> x, weight = torch.zeros(1, 4, 5, 7), torch.ones(4, 1, 3, 3)
    >>> bool((silu_depthwise_silu(x, weight, None) == 0).all())
    True
    """
    return F.silu(replicate_depthwise(F.silu(x), weight, bias))


@silu_depthwise_silu.register_kernel("cuda")
def _activated(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    from arrn.gpu.depthwise_launch import depthwise_forward

    return channels_first(depthwise_forward(channels_last(x), weight, bias, silu_before=True, silu_after=True)[0])


silu_depthwise_silu.register_fake(_forward_shape)
