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

__all__ = ["at_rows", "load_column", "load_taps", "locate", "rows_of_strips"]


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
