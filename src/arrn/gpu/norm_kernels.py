"""Triton functions: the sigmoid and SiLU, in few instructions."""

from __future__ import annotations

import os

import torch
import triton
import triton.language as tl

# An NVIDIA GPU's own 2^x and 1/x are good to about 1e-7; what Triton makes of exp and division guards ranges that a
# sigmoid does not have, in three times as many instructions. Triton's interpreter takes no assembly.
_OWN_INSTRUCTIONS = tl.constexpr(torch.version.cuda is not None and os.environ.get("TRITON_INTERPRET") != "1")


@triton.jit
def _tanh(h):
    """The GPU's own, good to 5e-4: enough for bfloat16, which rounds by up to 4e-3; a float16 by as much as this errs.

    It is one instruction of a kind of which an eighth as many are issued as of others; 2^x and 1/x are two of them.
    """
    return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [h], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def sigmoid(h, dtype: tl.constexpr):
    """1 / (1 + exp(-h)) of float32 numbers, as well as `dtype`, that of the tensors they come from, can tell."""
    if _OWN_INSTRUCTIONS and dtype == tl.bfloat16:
        return 0.5 * _tanh(0.5 * h) + 0.5
    if _OWN_INSTRUCTIONS:
        # 2^(-h log2 e); where it overflows, 1/x gives 0 as it should.
        return tl.inline_asm_elementwise(
            """{
            .reg .f32 e;
            mul.f32 e, $1, 0fBFB8AA3B;
            ex2.approx.ftz.f32 e, e;
            add.f32 e, e, 0f3F800000;
            rcp.approx.ftz.f32 $0, e;
            }""",
            "=f,f",
            [h],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    return tl.sigmoid(h)


@triton.jit
def silu(h, dtype: tl.constexpr):
    """h times its sigmoid."""
    if _OWN_INSTRUCTIONS and dtype == tl.bfloat16:
        half = 0.5 * h
        return half * _tanh(half) + half
    return h * sigmoid(h, dtype)


@triton.jit
def silu_slope(h, dtype: tl.constexpr):
    """The derivative of SiLU."""
    s = sigmoid(h, dtype)
    return s + h * s * (1.0 - s)


@triton.jit
def _place(channels, BLOCK_C: tl.constexpr):
    """The number of this program along the rows, its channels, and which of those exist."""
    across = tl.cdiv(channels, BLOCK_C)
    channel = tl.program_id(0) % across * BLOCK_C + tl.arange(0, BLOCK_C)[None, :]
    return tl.program_id(0) // across, channel, channel < channels


@triton.jit
def _rows_from(start, rows, BLOCK_M: tl.constexpr, BACKWARDS: tl.constexpr):
    """`BLOCK_M` rows, counted from the first or, backwards, from the last, and which of them exist."""
    number = start + tl.arange(0, BLOCK_M)[:, None]
    if BACKWARDS:
        row = rows - 1 - number
    else:
        row = number
    return row.to(tl.int64), number < rows


@triton.jit
def load_scale_and_shift(normal, channel, channels, exists):
    """The first two rows of a norm's numbers, as `finish_moments_kernel` leaves them."""
    scale = tl.load(normal + channel, mask=exists, other=0.0)
    return scale, tl.load(normal + channels + channel, mask=exists, other=0.0)


@triton.jit
def load_mean_and_inverse_std(normal, channel, channels, exists):
    """The third and fourth of them."""
    mean = tl.load(normal + 2 * channels + channel, mask=exists, other=0.0)
    return mean, tl.load(normal + 3 * channels + channel, mask=exists, other=0.0)


@triton.jit
def _factors(mask, row, rows_each, channel, channels, exists):
    """What the channels of each row's sample are multiplied by; a sample has `rows_each` rows."""
    return tl.load(mask + row // rows_each * channels + channel, mask=exists, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["rows", "programs"])
def moments_kernel(
    x, partial, rows, channels, programs, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr, BACKWARDS: tl.constexpr
):
    """Per program and channel: how many rows, their mean, and the squares about it."""
    program, channel, is_channel = _place(channels, BLOCK_C)
    # Taken about the first row: sums of squares lose their digits when the mean is large.
    about = tl.load(x + channel, mask=is_channel, other=0.0).to(tl.float32)
    total = tl.zeros((BLOCK_M, BLOCK_C), tl.float32)
    squares = tl.zeros((BLOCK_M, BLOCK_C), tl.float32)
    count = tl.zeros((BLOCK_M, 1), tl.float32)
    row, is_row = _rows_from(program * BLOCK_M, rows, BLOCK_M, BACKWARDS)
    coming = tl.load(x + row * channels + channel, mask=is_row & is_channel, other=0.0)
    for start in range(program * BLOCK_M, rows, programs * BLOCK_M):
        v, exists = coming.to(tl.float32), is_row & is_channel
        count += is_row.to(tl.float32)
        row, is_row = _rows_from(start + programs * BLOCK_M, rows, BLOCK_M, BACKWARDS)
        coming = tl.load(x + row * channels + channel, mask=is_row & is_channel, other=0.0)
        d = tl.where(exists, v - about, 0.0)
        total += d
        squares += d * d
    n = tl.sum(count, axis=0)[None, :]
    s, q = tl.sum(total, axis=0)[None, :], tl.sum(squares, axis=0)[None, :]
    mean = s / n
    place = partial + program * 3 * channels + channel
    tl.store(place, n + tl.zeros_like(mean), mask=is_channel)
    tl.store(place + channels, mean + about, mask=is_channel)
    tl.store(place + 2 * channels, q - s * mean, mask=is_channel)


@triton.jit(do_not_specialize=["programs"])
def finish_moments_kernel(
    partial,
    gamma,
    beta,
    running_mean,
    running_var,
    batches,
    out,
    channels,
    programs,
    momentum,
    eps,
    BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """Joins the partial moments; `out` gets scale, shift, mean and 1 / std; the running moments are moved on.

    `batches` counts the batches seen so far.
    """
    if tl.program_id(0) == 0:
        tl.store(batches, tl.load(batches) + 1)
    _, channel, is_channel = _place(channels, BLOCK_C)
    # Asked for before the sums, so that they are there when those are done.
    weight = tl.load(gamma + channel, mask=is_channel, other=0.0)
    bias = tl.load(beta + channel, mask=is_channel, other=0.0)
    old_mean = tl.load(running_mean + channel, mask=is_channel, other=0.0)
    old_var = tl.load(running_var + channel, mask=is_channel, other=0.0)
    # One pass, about the first program's mean.
    about = tl.load(partial + channels + channel, mask=is_channel, other=0.0)
    n = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    s = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    q = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    for start in range(0, programs, BLOCK_P):
        p = (start + tl.arange(0, BLOCK_P)[:, None]).to(tl.int64)
        exists = (p < programs) & is_channel
        place = partial + p * 3 * channels + channel
        count = tl.load(place, mask=exists, other=0.0)
        apart = tl.load(place + channels, mask=exists, other=0.0) - about
        n += count
        s += count * apart
        q += tl.load(place + 2 * channels, mask=exists, other=0.0) + count * apart * apart
    count_all = tl.sum(n, axis=0)[None, :]
    divisor = tl.maximum(count_all, 1.0)
    s_all = tl.sum(s, axis=0)[None, :]
    mean = about + s_all / divisor
    squares = tl.maximum(tl.sum(q, axis=0)[None, :] - s_all * s_all / divisor, 0.0)
    inverse_std = 1.0 / tl.sqrt(squares / divisor + eps)
    scale = weight * inverse_std
    tl.store(out + channel, scale, mask=is_channel)
    tl.store(out + channels + channel, bias - mean * scale, mask=is_channel)
    tl.store(out + 2 * channels + channel, mean, mask=is_channel)
    tl.store(out + 3 * channels + channel, inverse_std, mask=is_channel)
    tl.store(running_mean + channel, old_mean + momentum * (mean - old_mean), mask=is_channel)
    unbiased = squares / tl.maximum(count_all - 1.0, 1.0)
    tl.store(running_var + channel, old_var + momentum * (unbiased - old_var), mask=is_channel)


@triton.jit(do_not_specialize=["rows", "rows_each"])
def norm_silu_kernel(
    x,
    normal,
    mask,
    y,
    rows,
    rows_each,
    channels,
    BLOCK_M: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BACKWARDS: tl.constexpr,
    MASKED: tl.constexpr,
):
    """y = silu(x scale + shift), with ``MASKED`` times a factor for each channel of each sample of `rows_each` rows."""
    program, channel, is_channel = _place(channels, BLOCK_C)
    row, is_row = _rows_from(program * BLOCK_M, rows, BLOCK_M, BACKWARDS)
    exists = is_row & is_channel
    scale, shift = load_scale_and_shift(normal, channel, channels, is_channel)
    place = row * channels + channel
    h = tl.load(x + place, mask=exists, other=0.0).to(tl.float32) * scale + shift
    a = silu(h, x.dtype.element_ty)
    if MASKED:
        a *= _factors(mask, row, rows_each, channel, channels, exists)
    tl.store(y + place, a.to(y.dtype.element_ty), mask=exists)


@triton.jit(do_not_specialize=["rows", "rows_each", "programs"])
def norm_silu_sums_kernel(
    gradient,
    x,
    normal,
    mask,
    partial,
    rows,
    rows_each,
    channels,
    programs,
    BLOCK_M: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BACKWARDS: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Per program and channel: the gradient by what SiLU saw, summed, and summed times the normalised x."""
    program, channel, is_channel = _place(channels, BLOCK_C)
    scale, shift = load_scale_and_shift(normal, channel, channels, is_channel)
    mean, inverse_std = load_mean_and_inverse_std(normal, channel, channels, is_channel)
    total = tl.zeros((BLOCK_M, BLOCK_C), tl.float32)
    along = tl.zeros((BLOCK_M, BLOCK_C), tl.float32)
    row, is_row = _rows_from(program * BLOCK_M, rows, BLOCK_M, BACKWARDS)
    coming = tl.load(x + row * channels + channel, mask=is_row & is_channel, other=0.0)
    coming_gradient = tl.load(gradient + row * channels + channel, mask=is_row & is_channel, other=0.0)
    for start in range(program * BLOCK_M, rows, programs * BLOCK_M):
        v, g = coming.to(tl.float32), coming_gradient.to(tl.float32)
        if MASKED:
            g *= _factors(mask, row, rows_each, channel, channels, is_row & is_channel)
        row, is_row = _rows_from(start + programs * BLOCK_M, rows, BLOCK_M, BACKWARDS)
        coming = tl.load(x + row * channels + channel, mask=is_row & is_channel, other=0.0)
        coming_gradient = tl.load(gradient + row * channels + channel, mask=is_row & is_channel, other=0.0)
        d = g * silu_slope(v * scale + shift, x.dtype.element_ty)
        total += d
        along += d * (v - mean)
    along *= inverse_std
    place = partial + program * 2 * channels + channel
    tl.store(place, tl.sum(total, axis=0)[None, :], mask=is_channel)
    tl.store(place + channels, tl.sum(along, axis=0)[None, :], mask=is_channel)


@triton.jit
def added_up(partial, column, width, programs, BLOCK_P: tl.constexpr, BLOCK_W: tl.constexpr):
    """The sum over programs, each of which left `width` numbers, at `column`; in a fixed order."""
    total = tl.zeros((BLOCK_P, BLOCK_W), tl.float32)
    for start in range(0, programs, BLOCK_P):
        p = (start + tl.arange(0, BLOCK_P)[:, None]).to(tl.int64)
        total += tl.load(partial + p * width + column, mask=(p < programs) & (column < width), other=0.0)
    return tl.sum(total, axis=0)[None, :]


@triton.jit(do_not_specialize=["programs"])
def add_up_kernel(partial, out, width, programs, BLOCK_P: tl.constexpr, BLOCK_W: tl.constexpr):
    """out = partial summed over its first axis; `width` numbers per program."""
    column = tl.program_id(0) * BLOCK_W + tl.arange(0, BLOCK_W)[None, :]
    tl.store(out + column, added_up(partial, column, width, programs, BLOCK_P, BLOCK_W), mask=column < width)


@triton.jit(do_not_specialize=["rows", "rows_each"])
def norm_silu_backward_kernel(
    gradient,
    x,
    normal,
    mask,
    sums,
    out,
    rows,
    rows_each,
    channels,
    BLOCK_M: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BACKWARDS: tl.constexpr,
    THROUGH_SILU: tl.constexpr,
    MASKED: tl.constexpr,
):
    """The gradient by x, from that by the output (``THROUGH_SILU``) or by what SiLU saw."""
    program, channel, is_channel = _place(channels, BLOCK_C)
    row, is_row = _rows_from(program * BLOCK_M, rows, BLOCK_M, BACKWARDS)
    exists = is_row & is_channel
    scale, shift = load_scale_and_shift(normal, channel, channels, is_channel)
    mean, inverse_std = load_mean_and_inverse_std(normal, channel, channels, is_channel)
    level = tl.load(sums + channel, mask=is_channel, other=0.0) / rows
    slope = tl.load(sums + channels + channel, mask=is_channel, other=0.0) / rows
    place = row * channels + channel
    v = tl.load(x + place, mask=exists, other=0.0).to(tl.float32)
    d = tl.load(gradient + place, mask=exists, other=0.0).to(tl.float32)
    if MASKED:
        d *= _factors(mask, row, rows_each, channel, channels, exists)
    if THROUGH_SILU:
        d = d * silu_slope(v * scale + shift, x.dtype.element_ty)
    answer = scale * (d - level - (v - mean) * inverse_std * slope)
    tl.store(out + place, answer.to(out.dtype.element_ty), mask=exists)
