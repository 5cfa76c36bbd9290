"""Triton kernels: depthwise 3x3 convolution with replicate padding, channels-last, and its gradients.

How they go about it. A program owns `BLOCK_C` channels of `BLOCK_P` strips, a strip being `ROWS` rows of one
image, and walks along the columns: each column of a strip, with the row above and the row below it, is loaded
once and serves the three columns around it from registers. So a sample is read about (ROWS + 2) / ROWS times, mostly
from the cache, and padding is index clamping: no padded copy, no shared memory. The next column is on its way
while one is worked on.

What they fuse. With ``ACTIVATE`` the input is normalised and put through SiLU as it is loaded. With ``MEASURE``
the moments of the output that the next batch norm needs are taken as it is stored. The gradients by the input and by
the weights need the same two tensors and are one kernel.

With ``WHOLE`` the height is a whole number of strips, and no row needs a mask. All arithmetic is float32 whatever the
tensors are.
"""

from __future__ import annotations

import triton
import triton.language as tl

from arrn.gpu.activation_kernels import sigmoid, silu

__all__ = ["backward_kernel", "forward_kernel"]


@triton.jit
def _locate(
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
def _at_rows(base, image, first, channel, height, width, channels, COUNT: tl.constexpr):
    """Pointers to the first column of `COUNT` rows from `first` on, clamped to the image."""
    pointers = ()
    for r in tl.static_range(COUNT):
        row = tl.minimum(tl.maximum(first + r, 0), height - 1)
        pixel = (image.to(tl.int64) * height + row) * width
        pointers = pointers + (base + pixel * channels + channel,)
    return pointers


@triton.jit
def _rows_of_strips(exists, top, height, ROWS: tl.constexpr, WHOLE: tl.constexpr):
    """For each row of the strips, where it exists."""
    masks = ()
    for r in tl.static_range(ROWS):
        if WHOLE:
            masks = masks + (exists,)
        else:
            masks = masks + (exists & (top + r < height),)
    return masks


@triton.jit
def _taps(weight, channel, exists):
    """The nine weights of each channel, row by row."""
    taps = ()
    for k in tl.static_range(9):
        taps = taps + (tl.load(weight + channel * 9 + k, mask=exists, other=0.0).to(tl.float32),)
    return taps


@triton.jit
def _load_column(pointers, offset, masks, COUNT: tl.constexpr):
    """As it is stored: what is loaded ahead takes fewer registers so."""
    column = ()
    for r in tl.static_range(COUNT):
        column = column + (tl.load(pointers[r] + offset, mask=masks[r], other=0.0),)
    return column


@triton.jit
def _activated(column, scale, shift, ACTIVATE: tl.constexpr, PLAIN: tl.constexpr, COUNT: tl.constexpr):
    answers = ()
    for r in tl.static_range(COUNT):
        v = column[r].to(tl.float32)
        if ACTIVATE:
            if not PLAIN:
                v = v * scale + shift
            v = silu(v)
        answers = answers + (v,)
    return answers


@triton.jit
def _add_taps(sums, column, taps, SIDE: tl.constexpr, ROWS: tl.constexpr):
    """Adds to each output row the three input rows under the taps of column `SIDE` (0, 1 or 2)."""
    new = ()
    for r in tl.static_range(ROWS):
        s = sums[r] + taps[SIDE] * column[r]
        s += taps[3 + SIDE] * column[r + 1]
        s += taps[6 + SIDE] * column[r + 2]
        new = new + (s,)
    return new


@triton.jit
def _store_column(
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
            v = silu(v)
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
    scale,
    shift,
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
    program, image, top, channel, is_strip, is_channel = _locate(
        strips, height, channels, ROWS, BLOCK_P, BLOCK_C, False
    )
    exists = is_strip & is_channel
    taps = _taps(weight, channel, is_channel)
    a, b, about, added = 1.0, 0.0, 0.0, 0.0
    if ACTIVATE and not PLAIN:
        a = tl.load(scale + channel, mask=is_channel, other=0.0)
        b = tl.load(shift + channel, mask=is_channel, other=0.0)
    if BIAS:
        added = tl.load(bias + channel, mask=is_channel, other=0.0).to(tl.float32)
    if MEASURE:
        about = tl.load(pivot + channel, mask=is_channel, other=0.0)
    sources = _at_rows(x, image, top - 1, channel, height, width, channels, ROWS + 2)
    targets = _at_rows(y, image, top, channel, height, width, channels, ROWS)
    read = _rows_of_strips(exists, top, height, ROWS + 2, True)  # clamped, so all of them exist
    written = _rows_of_strips(exists, top, height, ROWS, WHOLE)
    zero = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    zeros = ()
    for _ in tl.static_range(ROWS):
        zeros = zeros + (zero,)
    moments = (zero, zero)

    # `before` is what the column left of the one at hand has gathered so far, `here` what the one at hand has. The
    # column beyond the left border is the first one again, and so beyond the right border.
    first = _load_column(sources, 0, read, ROWS + 2)
    coming = _load_column(sources, tl.minimum(1, width - 1) * channels, read, ROWS + 2)
    column = _activated(first, a, b, ACTIVATE, PLAIN, ROWS + 2)
    here = _add_taps(zeros, column, taps, 0, ROWS)
    before = _add_taps(here, column, taps, 1, ROWS)
    for j in range(1, width):
        column = _activated(coming, a, b, ACTIVATE, PLAIN, ROWS + 2)
        coming = _load_column(sources, tl.minimum(j + 1, width - 1) * channels, read, ROWS + 2)
        done = _add_taps(before, column, taps, 2, ROWS)
        moments = _store_column(
            targets, (j - 1) * channels, done, written, added, about, moments, BIAS, SILU, MEASURE, WHOLE, ROWS
        )
        before = _add_taps(here, column, taps, 1, ROWS)
        here = _add_taps(zeros, column, taps, 0, ROWS)
    column = _activated(coming, a, b, ACTIVATE, PLAIN, ROWS + 2)
    done = _add_taps(before, column, taps, 2, ROWS)
    last = (width - 1) * channels
    total, squares = _store_column(
        targets, last, done, written, added, about, moments, BIAS, SILU, MEASURE, WHOLE, ROWS
    )
    if MEASURE:
        # A strip that does not exist has been measured all the same.
        total, squares = tl.where(is_strip, total, 0.0), tl.where(is_strip, squares, 0.0)
        rows = tl.where(is_strip, tl.minimum(height - top, ROWS), 0)
        count = tl.sum(rows, axis=0)[None, :] * width
        total, squares = tl.sum(total, axis=0)[None, :], tl.sum(squares, axis=0)[None, :]
        mean = total / count
        place = partial + program * 3 * channels + channel
        tl.store(place, count.to(tl.float32) + tl.zeros_like(mean), mask=is_channel)
        tl.store(place + channels, mean + about, mask=is_channel)
        tl.store(place + 2 * channels, squares - total * mean, mask=is_channel)


@triton.jit
def _widened(column, COUNT: tl.constexpr):
    wide = ()
    for r in tl.static_range(COUNT):
        wide = wide + (column[r].to(tl.float32),)
    return wide


@triton.jit
def _weighted_sum(a, fa, b, fb, COUNT: tl.constexpr):
    sums = ()
    for r in tl.static_range(COUNT):
        sums = sums + (a[r] * fa + b[r] * fb,)
    return sums


@triton.jit
def _reaching(column, top_row, bottom_row, R: tl.constexpr, TAP: tl.constexpr, WHOLE: tl.constexpr, ROWS: tl.constexpr):
    """The gradient that reaches input row `R` of a strip through the taps of row `TAP`, from one output column.

    `column` holds the output rows from the one above the strip to the one below it, 0 outside the image. The first
    input row also stands for the padding above it, which the first output row saw through its upper taps, and the
    last one for the padding below.
    """
    if TAP == 0:
        reaching = column[R + 2]
        if R == 0:
            reaching += top_row * column[1]
    elif TAP == 1:
        reaching = column[R + 1]
    else:
        reaching = column[R]
        if R == ROWS - 1 or not WHOLE:
            reaching += bottom_row[R] * column[R + 1]
    return reaching


@triton.jit
def _finish_column(
    columns,
    x,
    taps,
    borders,
    sums,
    targets,
    offset,
    written,
    normal,
    ACTIVATE: tl.constexpr,
    WHOLE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Stores the gradient by one column of the input, and adds what it has for the sums.

    `columns` holds the output columns that reached it through taps of columns 0, 1 and 2: the one after it, its own
    and the one before it. `sums` has nine for the taps and two for the norm.
    """
    scale, shift, mean, inverse_std = normal
    top_row, bottom_row = borders
    for r in tl.static_range(ROWS):
        seen = x[r].to(tl.float32)
        if ACTIVATE:
            h = seen * scale + shift
            s = sigmoid(h)
            a = h * s
        else:
            a = seen
        if not WHOLE:
            a = tl.where(written[r], a, 0.0)
        by_input = 0.0
        new = ()
        for k in tl.static_range(9):
            reaching = _reaching(columns[k % 3], top_row, bottom_row, r, k // 3, WHOLE, ROWS)
            by_input += taps[k] * reaching
            new = new + (sums[k] + a * reaching,)
        if ACTIVATE:
            by_input *= s + a * (1.0 - s)
        tl.store(targets[r] + offset, by_input.to(targets[r].dtype.element_ty), mask=written[r])
        if ACTIVATE:
            if not WHOLE:
                by_input = tl.where(written[r], by_input, 0.0)
            sums = new + (sums[9] + by_input, sums[10] + by_input * (seen * inverse_std - mean * inverse_std))
        else:
            sums = new + (sums[9], sums[10])
    return sums


@triton.jit(do_not_specialize=["strips", "height", "width"])
def backward_kernel(
    gradient,
    weight,
    x,
    scale,
    shift,
    mean,
    inverse_std,
    out,
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
):
    """The gradient by what the taps saw, with ``ACTIVATE`` by what SiLU saw, and the gradient by the weights.

    `partial` gets, per program, rows of channels: the nine taps' sums, and with ``ACTIVATE`` the sums of `out` and of
    `out` times the normalised input.
    """
    # From the end: what came before in a training step, the gradient of a norm, went from the start.
    program, image, top, channel, is_strip, is_channel = _locate(strips, height, channels, ROWS, BLOCK_P, BLOCK_C, True)
    exists = is_strip & is_channel
    taps = _taps(weight, channel, is_channel)
    normal = (1.0, 0.0, 0.0, 1.0)
    if ACTIVATE:
        normal = (
            tl.load(scale + channel, mask=is_channel, other=0.0),
            tl.load(shift + channel, mask=is_channel, other=0.0),
            tl.load(mean + channel, mask=is_channel, other=0.0),
            tl.load(inverse_std + channel, mask=is_channel, other=0.0),
        )
    arriving = _at_rows(gradient, image, top - 1, channel, height, width, channels, ROWS + 2)
    sources = _at_rows(x, image, top, channel, height, width, channels, ROWS)
    targets = _at_rows(out, image, top, channel, height, width, channels, ROWS)
    written = _rows_of_strips(exists, top, height, ROWS, WHOLE)
    read = (exists & (top > 0),) + written + (exists & (top + ROWS < height),)
    bottom_row = ()
    for r in tl.static_range(ROWS):
        bottom_row = bottom_row + ((top + r == height - 1).to(tl.float32),)
    borders = ((top == 0).to(tl.float32), bottom_row)
    zero = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    sums = (zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero)

    # An input column is reached from the output columns after it, at it and before it; the first one once more from
    # its own, through the padding to its left, and so the last one. With one column in all both happen to the first.
    second = tl.minimum(1, width - 1) * channels
    several = (width > 1).to(tl.float32)
    before = _widened(_load_column(arriving, 0, read, ROWS + 2), ROWS + 2)
    here = _widened(_load_column(arriving, second, read, ROWS + 2), ROWS + 2)
    coming = _load_column(arriving, tl.minimum(2, width - 1) * channels, read, ROWS + 2)
    x_here = _load_column(sources, 0, written, ROWS)
    x_coming = _load_column(sources, second, written, ROWS)
    after_first = _weighted_sum(here, several, before, 1.0, ROWS + 2)
    before_first = _weighted_sum(before, 1.0 - several, before, 0.0, ROWS + 2)
    sums = _finish_column(
        (after_first, before, before_first),
        x_here,
        taps,
        borders,
        sums,
        targets,
        0,
        written,
        normal,
        ACTIVATE,
        WHOLE,
        ROWS,
    )
    for k in range(1, width - 1):
        after = _widened(coming, ROWS + 2)
        x_here = x_coming
        coming = _load_column(arriving, tl.minimum(k + 2, width - 1) * channels, read, ROWS + 2)
        x_coming = _load_column(sources, (k + 1) * channels, written, ROWS)
        sums = _finish_column(
            (after, here, before),
            x_here,
            taps,
            borders,
            sums,
            targets,
            k * channels,
            written,
            normal,
            ACTIVATE,
            WHOLE,
            ROWS,
        )
        before, here = here, after
    before_last = _weighted_sum(before, several, here, several, ROWS + 2)
    here = _weighted_sum(here, several, here, 0.0, ROWS + 2)
    after_last = _weighted_sum(here, 0.0, here, 0.0, ROWS + 2)
    left = ()
    for r in tl.static_range(ROWS):
        left = left + (written[r] & (width > 1),)
    sums = _finish_column(
        (after_last, here, before_last),
        x_coming,
        taps,
        borders,
        sums,
        targets,
        (width - 1) * channels,
        left,
        normal,
        ACTIVATE,
        WHOLE,
        ROWS,
    )
    for k in tl.static_range(11):
        if k < 9 or ACTIVATE:
            place = partial + (program * 11 + k) * channels + channel
            tl.store(place, tl.sum(sums[k], axis=0)[None, :], mask=is_channel)
