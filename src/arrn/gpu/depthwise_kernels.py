"""Triton functions for walking over images in strips, channels-last, as the depthwise kernels do.

A program owns `BLOCK_C` channels of `BLOCK_P` strips, a strip being `ROWS` rows of one image, and walks along the
columns: each column of a strip, with the row above and the row below it, is loaded once and serves the three columns
around it from registers. So a sample is read about (ROWS + 2) / ROWS times, mostly from the cache, and padding is
index clamping: no padded copy, no shared memory. The next column is on its way while one is worked on.

With ``WHOLE`` the height is a whole number of strips, and no row needs a mask.
"""

from __future__ import annotations

import triton
import triton.language as tl

from arrn.gpu.norm_kernels import load_scale_and_shift, silu


@triton.jit
def locate(
    strips,
    height,
    channels,
    ROWS: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BACKWARDS: tl.constexpr,
):
    """This program's number along the strips, the images and first rows of its strips, its channels; what exists."""
    across = tl.cdiv(channels, BLOCK_C)
    program = tl.program_id(0) // across
    if BACKWARDS:
        program = tl.num_programs(0) // across - 1 - program
    strip = program * BLOCK_P + tl.arange(0, BLOCK_P)[:, None]
    channel = tl.program_id(0) % across * BLOCK_C + tl.arange(0, BLOCK_C)[None, :]
    per_image = tl.cdiv(height, ROWS)
    return program, strip // per_image, strip % per_image * ROWS, channel, strip < strips, channel < channels


@triton.jit
def at_rows(base, image, first, channel, height, width, channels, COUNT: tl.constexpr):
    """Pointers to the first column of `COUNT` rows from `first` on, clamped to the image."""
    pointers = ()
    for r in tl.static_range(COUNT):
        row = tl.minimum(tl.maximum(first + r, 0), height - 1)
        pixel = (image.to(tl.int64) * height + row) * width
        pointers = pointers + (base + pixel * channels + channel,)
    return pointers


@triton.jit
def rows_of_strips(exists, top, height, ROWS: tl.constexpr, WHOLE: tl.constexpr):
    """For each row of the strips, where it exists."""
    masks = ()
    for r in tl.static_range(ROWS):
        if WHOLE:
            masks = masks + (exists,)
        else:
            masks = masks + (exists & (top + r < height),)
    return masks


@triton.jit
def load_taps(weight, channel, exists):
    """The nine weights of each channel, row by row."""
    taps = ()
    for k in tl.static_range(9):
        taps = taps + (tl.load(weight + channel * 9 + k, mask=exists, other=0.0).to(tl.float32),)
    return taps


@triton.jit
def load_column(pointers, offset, masks, COUNT: tl.constexpr):
    """As it is stored: what is loaded ahead takes fewer registers so."""
    column = ()
    for r in tl.static_range(COUNT):
        column = column + (tl.load(pointers[r] + offset, mask=masks[r], other=0.0),)
    return column


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
