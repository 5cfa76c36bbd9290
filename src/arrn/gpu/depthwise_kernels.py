"""Triton kernels: depthwise 3x3 convolution with replicate padding, channels-last, and its gradients.

How they go about it. A program owns `BLOCK_C` channels of `BLOCK_P` strips, a strip being `ROWS` rows of one
image, and walks along the columns: each column of a strip, with the row above and the row below it, is loaded
once and serves the three columns around it, whose sums are kept in registers. So a sample is read from memory
about (ROWS + 2) / ROWS times, and padding is index clamping: no padded copy, no shared memory.

What they fuse. With ``ACTIVATE`` the input is normalised and put through SiLU as it is loaded. With ``MEASURE``
the moments of the output that the next batch norm needs are taken as it is stored.

All arithmetic is float32 whatever the tensors are.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["backward_input_kernel", "backward_weight_kernel", "forward_kernel"]


@triton.jit
def silu(h):
    return h * tl.sigmoid(h)


@triton.jit
def silu_slope(h):
    s = tl.sigmoid(h)
    return s * (1 + h * (1 - s))


@triton.jit
def _locate(strips, height, channels, ROWS: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr):
    """The images and first rows of this program's strips, its channels, and which of both exist."""
    strip = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)[:, None]
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)[None, :]
    per_image = tl.cdiv(height, ROWS)
    return strip // per_image, strip % per_image * ROWS, channel, strip < strips, channel < channels


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
def _taps(weight, channel, exists):
    """The nine weights of each channel, row by row."""
    taps = ()
    for k in tl.static_range(9):
        taps = taps + (tl.load(weight + channel * 9 + k, mask=exists, other=0.0).to(tl.float32),)
    return taps


@triton.jit
def _load_column(pointers, offset, exists, scale, shift, ACTIVATE: tl.constexpr, COUNT: tl.constexpr):
    column = ()
    for r in tl.static_range(COUNT):
        v = tl.load(pointers[r] + offset, mask=exists, other=0.0).to(tl.float32)
        if ACTIVATE:
            v = silu(v * scale + shift)
        column = column + (v,)
    return column


@triton.jit
def _along_column(column, taps, SIDE: tl.constexpr, ROWS: tl.constexpr):
    """For each output row, the sum over the three input rows under the taps of column `SIDE` (0, 1 or 2)."""
    sums = ()
    for r in tl.static_range(ROWS):
        s = taps[SIDE] * column[r] + taps[3 + SIDE] * column[r + 1] + taps[6 + SIDE] * column[r + 2]
        sums = sums + (s,)
    return sums


@triton.jit
def _add(a, b, COUNT: tl.constexpr):
    sums = ()
    for r in tl.static_range(COUNT):
        sums = sums + (a[r] + b[r],)
    return sums


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
    ROWS: tl.constexpr,
):
    """Stores a finished column; returns the sums of its values, as stored and less `pivot`, and of their squares."""
    total, squares = moments
    for r in tl.static_range(ROWS):
        v = values[r]
        if BIAS:
            v = v + bias
        if SILU:
            v = silu(v)
        stored = v.to(pointers[r].dtype.element_ty)
        tl.store(pointers[r] + offset, stored, mask=written[r])
        if MEASURE:
            d = tl.where(written[r], stored.to(tl.float32) - pivot, 0.0)
            total = total + d
            squares = squares + d * d
    return total, squares


@triton.jit
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
    ACTIVATE: tl.constexpr,
    PLAIN: tl.constexpr,
    BIAS: tl.constexpr,
    SILU: tl.constexpr,
    MEASURE: tl.constexpr,
):
    """y = taps over x; `partial` gets, per program and channel, the mean of y and the squares about it.

    ``PLAIN`` activates the input without normalising it; ``SILU`` activates the output, after its bias.
    """
    image, top, channel, is_strip, is_channel = _locate(strips, height, channels, ROWS, BLOCK_P, BLOCK_C)
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
    written = ()
    for r in tl.static_range(ROWS):
        written = written + (exists & (top + r < height),)
    zero = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    moments = (zero, zero)

    # `before` is the sum of the column left of the one being loaded, `here` that of the one being loaded. The
    # column beyond the left border is the first one again, and so beyond the right border.
    column = _load_column(sources, 0, exists, a, b, ACTIVATE, ROWS + 2)
    here = _along_column(column, taps, 0, ROWS)
    before = _add(here, _along_column(column, taps, 1, ROWS), ROWS)
    for j in range(1, width):
        column = _load_column(sources, j * channels, exists, a, b, ACTIVATE, ROWS + 2)
        done = _add(before, _along_column(column, taps, 2, ROWS), ROWS)
        moments = _store_column(
            targets, (j - 1) * channels, done, written, added, about, moments, BIAS, SILU, MEASURE, ROWS
        )
        before = _add(here, _along_column(column, taps, 1, ROWS), ROWS)
        here = _along_column(column, taps, 0, ROWS)
    last = (width - 1) * channels
    column = _load_column(sources, last, exists, a, b, ACTIVATE, ROWS + 2)
    done = _add(before, _along_column(column, taps, 2, ROWS), ROWS)
    total, squares = _store_column(targets, last, done, written, added, about, moments, BIAS, SILU, MEASURE, ROWS)
    if MEASURE:
        rows = tl.where(is_strip, tl.minimum(height - top, ROWS), 0)
        count = tl.sum(rows, axis=0)[None, :] * width
        total, squares = tl.sum(total, axis=0)[None, :], tl.sum(squares, axis=0)[None, :]
        mean = total / count
        place = partial + tl.program_id(0) * 3 * channels + channel
        tl.store(place, count.to(tl.float32) + tl.zeros_like(mean), mask=is_channel)
        tl.store(place + channels, mean + about, mask=is_channel)
        tl.store(place + 2 * channels, squares - total * mean, mask=is_channel)


@triton.jit
def _fold_rows(column, taps, top, height, SIDE: tl.constexpr, ROWS: tl.constexpr):
    """For each input row, the gradient that reaches it from the output rows above, at and below it.

    Rows of the gradient outside the image are 0 in `column`. The first input row also stands for the padding
    above it, which the first output row saw through its upper tap, and the last one for the padding below.
    """
    sums = ()
    for r in tl.static_range(ROWS):
        above, at, below = column[r], column[r + 1], column[r + 2]
        above = above + tl.where(top + r == height - 1, at, 0.0)
        below = below + tl.where(top + r == 0, at, 0.0)
        sums = sums + (taps[6 + SIDE] * above + taps[3 + SIDE] * at + taps[SIDE] * below,)
    return sums


@triton.jit
def _load_gradient(pointers, offset, masks, COUNT: tl.constexpr):
    column = ()
    for r in tl.static_range(COUNT):
        column = column + (tl.load(pointers[r] + offset, mask=masks[r], other=0.0).to(tl.float32),)
    return column


@triton.jit
def _store_gradient(
    targets,
    sources,
    offset,
    values,
    written,
    scale,
    shift,
    mean,
    inverse_std,
    moments,
    ACTIVATE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Stores a finished column of the input's gradient, taken back through SiLU first where there was one."""
    total, along = moments
    for r in tl.static_range(ROWS):
        v = values[r]
        if ACTIVATE:
            x = tl.load(sources[r] + offset, mask=written[r], other=0.0).to(tl.float32)
            v = v * silu_slope(x * scale + shift)
        stored = v.to(targets[r].dtype.element_ty)
        tl.store(targets[r] + offset, stored, mask=written[r])
        if ACTIVATE:
            d = tl.where(written[r], stored.to(tl.float32), 0.0)
            total = total + d
            along = along + d * (x - mean) * inverse_std
    return total, along


@triton.jit
def backward_input_kernel(
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
    ACTIVATE: tl.constexpr,
):
    """The gradient by what the taps saw; with ``ACTIVATE`` by what SiLU saw.

    `partial` then gets, per program and channel, the sums of `out` and of `out` times the normalised input.
    """
    image, top, channel, is_strip, is_channel = _locate(strips, height, channels, ROWS, BLOCK_P, BLOCK_C)
    exists = is_strip & is_channel
    taps = _taps(weight, channel, is_channel)
    a, b, m, s = 1.0, 0.0, 0.0, 1.0
    if ACTIVATE:
        a = tl.load(scale + channel, mask=is_channel, other=0.0)
        b = tl.load(shift + channel, mask=is_channel, other=0.0)
        m = tl.load(mean + channel, mask=is_channel, other=0.0)
        s = tl.load(inverse_std + channel, mask=is_channel, other=0.0)
    arriving = _at_rows(gradient, image, top - 1, channel, height, width, channels, ROWS + 2)
    targets = _at_rows(out, image, top, channel, height, width, channels, ROWS)
    sources = _at_rows(x, image, top, channel, height, width, channels, ROWS)
    read, written = (), ()
    for r in tl.static_range(ROWS + 2):
        read = read + (exists & (top + r >= 1) & (top + r <= height),)
    for r in tl.static_range(ROWS):
        written = written + (exists & (top + r < height),)
    zero = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    moments = (zero, zero)

    # Output column k reached input columns k - 1, k and k + 1; the first also column 0 once more, through the
    # padding to its left, and the last its own column through the padding to its right.
    column = _load_gradient(arriving, 0, read, ROWS + 2)
    left = _fold_rows(column, taps, top, height, 0, ROWS)
    before = _add(_fold_rows(column, taps, top, height, 1, ROWS), left, ROWS)
    here = _fold_rows(column, taps, top, height, 2, ROWS)
    for k in range(1, width):
        column = _load_gradient(arriving, k * channels, read, ROWS + 2)
        done = _add(before, _fold_rows(column, taps, top, height, 0, ROWS), ROWS)
        moments = _store_gradient(
            targets, sources, (k - 1) * channels, done, written, a, b, m, s, moments, ACTIVATE, ROWS
        )
        before = _add(here, _fold_rows(column, taps, top, height, 1, ROWS), ROWS)
        here = _fold_rows(column, taps, top, height, 2, ROWS)
    done = _add(before, here, ROWS)
    total, along = _store_gradient(
        targets, sources, (width - 1) * channels, done, written, a, b, m, s, moments, ACTIVATE, ROWS
    )
    if ACTIVATE:
        place = partial + tl.program_id(0) * 2 * channels + channel
        tl.store(place, tl.sum(total, axis=0)[None, :], mask=is_channel)
        tl.store(place + channels, tl.sum(along, axis=0)[None, :], mask=is_channel)


@triton.jit
def _gather_taps(sums, column, gradient, SIDE: tl.constexpr, ROWS: tl.constexpr):
    """Adds, to the three taps of column `SIDE`, each input row times the gradient of the row that saw it."""
    new = ()
    for k in tl.static_range(9):
        if k % 3 == SIDE:
            s = sums[k]
            for r in tl.static_range(ROWS):
                s = s + column[r + k // 3] * gradient[r]
            new = new + (s,)
        else:
            new = new + (sums[k],)
    return new


@triton.jit
def backward_weight_kernel(
    gradient,
    x,
    scale,
    shift,
    partial,
    strips,
    height,
    width,
    channels,
    ROWS: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr,
    ACTIVATE: tl.constexpr,
):
    """The gradient by the weights: `partial` gets, per program and channel, nine sums over its strips."""
    image, top, channel, is_strip, is_channel = _locate(strips, height, channels, ROWS, BLOCK_P, BLOCK_C)
    exists = is_strip & is_channel
    a, b = 1.0, 0.0
    if ACTIVATE:
        a = tl.load(scale + channel, mask=is_channel, other=0.0)
        b = tl.load(shift + channel, mask=is_channel, other=0.0)
    sources = _at_rows(x, image, top - 1, channel, height, width, channels, ROWS + 2)
    arriving = _at_rows(gradient, image, top, channel, height, width, channels, ROWS)
    read = ()
    for r in tl.static_range(ROWS):
        read = read + (exists & (top + r < height),)
    zero = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    sums = (zero, zero, zero, zero, zero, zero, zero, zero, zero)

    # Input column k was seen by output columns k + 1, k and k - 1, through the taps of columns 0, 1 and 2; the
    # border columns once more, as their own padding.
    here = _load_gradient(arriving, 0, read, ROWS)
    column = _load_column(sources, 0, exists, a, b, ACTIVATE, ROWS + 2)
    sums = _gather_taps(sums, column, here, 0, ROWS)
    sums = _gather_taps(sums, column, here, 1, ROWS)
    for k in range(1, width):
        after = _load_gradient(arriving, k * channels, read, ROWS)
        sums = _gather_taps(sums, column, after, 0, ROWS)
        column = _load_column(sources, k * channels, exists, a, b, ACTIVATE, ROWS + 2)
        sums = _gather_taps(sums, column, after, 1, ROWS)
        sums = _gather_taps(sums, column, here, 2, ROWS)
        here = after
    sums = _gather_taps(sums, column, here, 2, ROWS)
    for k in tl.static_range(9):
        place = partial + (tl.program_id(0) * channels + channel) * 9 + k
        tl.store(place, tl.sum(sums[k], axis=0)[None, :], mask=is_channel)
