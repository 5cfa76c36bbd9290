"""Triton kernels: the gradients of the depthwise convolution, by its input and by its weights.

They need the same two tensors, so one kernel walks over both by strips (`strip_kernels`). With ``ACTIVATE`` the input
was normalised and activated on its way into the convolution, and is again here. All arithmetic is float32 whatever
the tensors are.
"""

from __future__ import annotations

import triton
import triton.language as tl

from arrn.gpu.depthwise_kernels import at_rows, load_column, load_taps, locate, rows_of_strips
from arrn.gpu.norm_kernels import added_up, load_mean_and_inverse_std, load_scale_and_shift, sigmoid


@triton.jit
def _widened(column, COUNT: tl.constexpr):
    wide = ()
    for r in tl.static_range(COUNT):
        wide = wide + (column[r].to(tl.float32),)
    return wide


@triton.jit
def _sum(a, b, COUNT: tl.constexpr):
    sums = ()
    for r in tl.static_range(COUNT):
        sums = sums + (a[r] + b[r],)
    return sums


@triton.jit
def _scaled(column, factor, COUNT: tl.constexpr):
    scaled = ()
    for r in tl.static_range(COUNT):
        scaled = scaled + (column[r] * factor,)
    return scaled


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
    norm,
    ACTIVATE: tl.constexpr,
    WHOLE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Stores the gradient by one column of the input, and adds what it has for the sums.

    `columns` holds the output columns that reached it through taps of columns 0, 1 and 2: the one after it, its own
    and the one before it. `sums` has nine for the taps and two for the norm.
    """
    scale, shift, mean, inverse_std = norm
    top_row, bottom_row = borders
    for r in tl.static_range(ROWS):
        seen = x[r].to(tl.float32)
        if ACTIVATE:
            h = seen * scale + shift
            s = sigmoid(h, x[r].dtype)
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
    normal,
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
    program, image, top, channel, is_strip, is_channel = locate(strips, height, channels, ROWS, BLOCK_P, BLOCK_C, True)
    exists = is_strip & is_channel
    taps = load_taps(weight, channel, is_channel)
    norm = (1.0, 0.0, 0.0, 1.0)
    if ACTIVATE:
        norm = load_scale_and_shift(normal, channel, channels, is_channel)
        norm = norm + load_mean_and_inverse_std(normal, channel, channels, is_channel)
    arriving = at_rows(gradient, image, top - 1, channel, height, width, channels, ROWS + 2)
    sources = at_rows(x, image, top, channel, height, width, channels, ROWS)
    targets = at_rows(out, image, top, channel, height, width, channels, ROWS)
    written = rows_of_strips(exists, top, height, ROWS, WHOLE)
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
    before = _widened(load_column(arriving, 0, read, ROWS + 2), ROWS + 2)
    here = _widened(load_column(arriving, second, read, ROWS + 2), ROWS + 2)
    coming = load_column(arriving, tl.minimum(2, width - 1) * channels, read, ROWS + 2)
    x_here = load_column(sources, 0, written, ROWS)
    x_coming = load_column(sources, second, written, ROWS)
    after_first = _sum(_scaled(here, several, ROWS + 2), before, ROWS + 2)
    before_first = _scaled(before, 1.0 - several, ROWS + 2)
    sums = _finish_column(
        (after_first, before, before_first),
        x_here,
        taps,
        borders,
        sums,
        targets,
        0,
        written,
        norm,
        ACTIVATE,
        WHOLE,
        ROWS,
    )
    for k in range(1, width - 1):
        after = _widened(coming, ROWS + 2)
        x_here = x_coming
        coming = load_column(arriving, tl.minimum(k + 2, width - 1) * channels, read, ROWS + 2)
        x_coming = load_column(sources, (k + 1) * channels, written, ROWS)
        sums = _finish_column(
            (after, here, before),
            x_here,
            taps,
            borders,
            sums,
            targets,
            k * channels,
            written,
            norm,
            ACTIVATE,
            WHOLE,
            ROWS,
        )
        before, here = here, after
    before_last = _scaled(_sum(before, here, ROWS + 2), several, ROWS + 2)
    here = _scaled(here, several, ROWS + 2)
    after_last, left = (), ()
    for _ in tl.static_range(ROWS + 2):
        after_last = after_last + (zero,)
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
        norm,
        ACTIVATE,
        WHOLE,
        ROWS,
    )
    for k in tl.static_range(11):
        if k < 9 or ACTIVATE:
            place = partial + (program.to(tl.int64) * 11 + k) * channels + channel
            tl.store(place, tl.sum(sums[k], axis=0)[None, :], mask=is_channel)


@triton.jit(do_not_specialize=["programs"])
def finish_gradients_kernel(partial, by_weight, sums, channels, programs, BLOCK_P: tl.constexpr, BLOCK_W: tl.constexpr):
    """Rows of 11 sums per channel, added up over programs: nine become a channel's taps, two are kept as rows."""
    column = tl.program_id(0) * BLOCK_W + tl.arange(0, BLOCK_W)[None, :]
    total = added_up(partial, column, 11 * channels, programs, BLOCK_P, BLOCK_W)
    k, channel = column // channels, column % channels
    tl.store(by_weight + channel * 9 + k, total, mask=k < 9)
    tl.store(sums + (k - 9) * channels + channel, total, mask=(k >= 9) & (k < 11))
