"""Triton kernel: the depthwise convolution of `depthwise_kernels` for few images, where strips would be too few.

A program owns `BLOCK_C` channels of `BLOCK_P` pixels and asks for all nine neighbours of each at once: nothing waits
for anything else, and each sample is read, and activated, nine times. A few images lie in the cache, and most of the
GPU would otherwise have nothing to do.
"""

from __future__ import annotations

import triton
import triton.language as tl

from arrn.gpu.depthwise_kernels import activated, store_column
from arrn.gpu.norm_kernels import load_scale_and_shift
from arrn.gpu.strip_kernels import load_taps

__all__ = ["pixel_kernel"]


@triton.jit(do_not_specialize=["pixels", "height", "width"])
def pixel_kernel(
    x,
    weight,
    bias,
    normal,
    y,
    pixels,
    height,
    width,
    channels,
    BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr,
    ACTIVATE: tl.constexpr,
    PLAIN: tl.constexpr,
    BIAS: tl.constexpr,
    SILU: tl.constexpr,
):
    """y = taps over x, with what `forward_kernel` has around it but for moments."""
    across = tl.cdiv(channels, BLOCK_C)
    channel = tl.program_id(0) % across * BLOCK_C + tl.arange(0, BLOCK_C)[None, :]
    pixel = tl.program_id(0) // across * BLOCK_P + tl.arange(0, BLOCK_P)[:, None]
    is_channel = channel < channels
    exists = (pixel < pixels) & is_channel
    column, line = pixel % width, pixel // width
    row, image = line % height, line // height
    near = ()
    for k in tl.static_range(9):
        r = tl.minimum(tl.maximum(row + (k // 3 - 1), 0), height - 1)
        c = tl.minimum(tl.maximum(column + (k % 3 - 1), 0), width - 1)
        place = ((image * height + r) * width + c) * channels + channel
        near = near + (tl.load(x + place, mask=exists, other=0.0),)
    taps = load_taps(weight, channel, is_channel)
    a, b, added = 1.0, 0.0, 0.0
    if ACTIVATE and not PLAIN:
        a, b = load_scale_and_shift(normal, channel, channels, is_channel)
    if BIAS:
        added = tl.load(bias + channel, mask=is_channel, other=0.0).to(tl.float32)
    near = activated(near, a, b, ACTIVATE, PLAIN, 9)
    total = taps[0] * near[0]
    for k in tl.static_range(1, 9):
        total += taps[k] * near[k]
    target = y + pixel * channels + channel
    store_column((target,), 0, (total,), (exists,), added, 0.0, (0.0, 0.0), BIAS, SILU, False, True, 1)
