"""Triton kernel: depthwise 3x3 convolution with replicate padding, channels-last, by strips (`strip_kernels`).

With ``ACTIVATE`` the input is normalised and put through SiLU as it is loaded. With ``MEASURE`` the moments of the
output that the next batch norm needs are taken as it is stored. All arithmetic is float32 whatever the tensors are.
"""

from __future__ import annotations

import triton
import triton.language as tl

from arrn.gpu.activation_kernels import silu
from arrn.gpu.norm_kernels import load_scale_and_shift
from arrn.gpu.strip_kernels import at_rows, load_column, load_taps, locate, rows_of_strips

__all__ = ["activated", "forward_kernel", "store_column"]


@triton.jit
def activated(column, scale, shift, ACTIVATE: tl.constexpr, PLAIN: tl.constexpr, COUNT: tl.constexpr):
    """Each of `COUNT` blocks of numbers as the taps see it."""
    answers = ()
    for r in tl.static_range(COUNT):
        v = column[r].to(tl.float32)
        if ACTIVATE:
            if not PLAIN:
                v = v * scale + shift
            v = silu(v, column[r].dtype)
        answers = answers + (v,)
    return answers


@triton.jit
def _addtaps(sums, column, taps, SIDE: tl.constexpr, ROWS: tl.constexpr):
    """Adds to each output row the three input rows under the taps of column `SIDE` (0, 1 or 2)."""
    new = ()
    for r in tl.static_range(ROWS):
        s = sums[r] + taps[SIDE] * column[r]
        s += taps[3 + SIDE] * column[r + 1]
        s += taps[6 + SIDE] * column[r + 2]
        new = new + (s,)
    return new


@triton.jit
def store_column(
    pointers,
    offset,
    values,
    written,
    bias,
    pivot,
    moments,
    BIAS: tl.constexpr,
    SILU: tl.constexpr,
    MEASURE: tl.constexpr,
    WHOLE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Stores a finished column; returns the sums of its values less `pivot` and of their squares."""
    total, squares = moments
    for r in tl.static_range(ROWS):
        v = values[r]
        if BIAS:
            v = v + bias
        if SILU:
            v = silu(v, pointers[r].dtype.element_ty)
        tl.store(pointers[r] + offset, v.to(pointers[r].dtype.element_ty), mask=written[r])
        if MEASURE:
            d = v - pivot
            if not WHOLE:
                d = tl.where(written[r], d, 0.0)
            total += d
            squares += d * d
    return total, squares


# One compiled kernel serves every size of image: Triton would make another for each that is 1 or divides by 16.
@triton.jit(do_not_specialize=["strips", "height", "width"])
def forward_kernel(
    x,
    weight,
    bias,
    normal,
    pivot,
    y,
    partial,
    strips,
    height,
    width,
    channels,
    ROWS: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr,
    WHOLE: tl.constexpr,
    ACTIVATE: tl.constexpr,
    PLAIN: tl.constexpr,
    BIAS: tl.constexpr,
    SILU: tl.constexpr,
    MEASURE: tl.constexpr,
):
    """y = taps over x; `partial` gets, per program and channel, a count, the mean of y and the squares about it.

    ``PLAIN`` activates the input without normalising it; ``SILU`` activates the output, after its bias.
    """
    program, image, top, channel, is_strip, is_channel = locate(strips, height, channels, ROWS, BLOCK_P, BLOCK_C, False)
    exists = is_strip & is_channel
    taps = load_taps(weight, channel, is_channel)
    a, b, about, added = 1.0, 0.0, 0.0, 0.0
    if ACTIVATE and not PLAIN:
        a, b = load_scale_and_shift(normal, channel, channels, is_channel)
    if BIAS:
        added = tl.load(bias + channel, mask=is_channel, other=0.0).to(tl.float32)
    if MEASURE:
        about = tl.load(pivot + channel, mask=is_channel, other=0.0)
    sources = at_rows(x, image, top - 1, channel, height, width, channels, ROWS + 2)
    targets = at_rows(y, image, top, channel, height, width, channels, ROWS)
    read = rows_of_strips(exists, top, height, ROWS + 2, True)  # clamped, so all of them exist
    written = rows_of_strips(exists, top, height, ROWS, WHOLE)
    zero = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    zeros = ()
    for _ in tl.static_range(ROWS):
        zeros = zeros + (zero,)
    moments = (zero, zero)

    # `before` is what the column left of the one at hand has gathered so far, `here` what the one at hand has. The
    # column beyond the left border is the first one again, and so beyond the right border.
    first = load_column(sources, 0, read, ROWS + 2)
    coming = load_column(sources, tl.minimum(1, width - 1) * channels, read, ROWS + 2)
    column = activated(first, a, b, ACTIVATE, PLAIN, ROWS + 2)
    here = _addtaps(zeros, column, taps, 0, ROWS)
    before = _addtaps(here, column, taps, 1, ROWS)
    for j in range(1, width):
        column = activated(coming, a, b, ACTIVATE, PLAIN, ROWS + 2)
        coming = load_column(sources, tl.minimum(j + 1, width - 1) * channels, read, ROWS + 2)
        done = _addtaps(before, column, taps, 2, ROWS)
        moments = store_column(
            targets, (j - 1) * channels, done, written, added, about, moments, BIAS, SILU, MEASURE, WHOLE, ROWS
        )
        before = _addtaps(here, column, taps, 1, ROWS)
        here = _addtaps(zeros, column, taps, 0, ROWS)
    column = activated(coming, a, b, ACTIVATE, PLAIN, ROWS + 2)
    done = _addtaps(before, column, taps, 2, ROWS)
    last = (width - 1) * channels
    total, squares = store_column(targets, last, done, written, added, about, moments, BIAS, SILU, MEASURE, WHOLE, ROWS)
    if MEASURE:
        # A strip that does not exist has been measured all the same.
        total, squares = tl.where(is_strip, total, 0.0), tl.where(is_strip, squares, 0.0)
        rows = tl.where(is_strip, tl.minimum(height - top, ROWS), 0)
        count = tl.sum(rows, axis=0)[None, :] * width
        total, squares = tl.sum(total, axis=0)[None, :], tl.sum(squares, axis=0)[None, :]
        mean = total / count
        place = partial + program.to(tl.int64) * 3 * channels + channel
        tl.store(place, count.to(tl.float32) + tl.zeros_like(mean), mask=is_channel)
        tl.store(place + channels, mean + about, mask=is_channel)
        tl.store(place + 2 * channels, squares - total * mean, mask=is_channel)
