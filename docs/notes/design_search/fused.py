"""Triton kernels for norm and activation over channels-last bf16 tensors: two passes forward, two backward.

norm_act: act(gamma (x - mean) / std + beta)            (centred: batch norm)
          act(s x), s = gamma / rms                      (not centred: zero stays zero)
          act(s x + U c) - act(U c)                      (with a context c on a grid `factor` times coarser, nearest U)
Moments and the tilings follow arrn.gpu.norm_kernels (measured on an H200).
"""
from __future__ import annotations

import os

import torch

try:
    import triton
    import triton.language as tl

    HAVE = True
except ImportError:  # pragma: no cover
    HAVE = False

ENABLED = os.environ.get("FRONTIER_FUSED", "1") == "1"


def usable(x: torch.Tensor) -> bool:
    return HAVE and ENABLED and x.is_cuda and x.dtype == torch.bfloat16


if HAVE:

    @triton.jit
    def _act(h, ACT: tl.constexpr):
        if ACT == 1:
            answer = tl.maximum(h, 0.0)
        elif ACT == 2:
            answer = h * tl.sigmoid(h)
        else:
            answer = h
        return answer

    @triton.jit
    def _slope(h, ACT: tl.constexpr):
        if ACT == 1:
            answer = tl.where(h > 0.0, 1.0, 0.0)
        elif ACT == 2:
            s = tl.sigmoid(h)
            answer = s + h * s * (1.0 - s)
        else:
            answer = h * 0.0 + 1.0
        return answer

    @triton.jit
    def _place(channels, BLOCK_C: tl.constexpr):
        across = tl.cdiv(channels, BLOCK_C)
        channel = tl.program_id(0) % across * BLOCK_C + tl.arange(0, BLOCK_C)[None, :]
        return tl.program_id(0) // across, channel, channel < channels

    @triton.jit(do_not_specialize=["rows", "programs"])
    def moments_kernel(x, partial, rows, channels, programs, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr):
        program, channel, ok = _place(channels, BLOCK_C)
        about = tl.load(x + channel, mask=ok, other=0.0).to(tl.float32)
        total = tl.zeros((BLOCK_M, BLOCK_C), tl.float32)
        squares = tl.zeros((BLOCK_M, BLOCK_C), tl.float32)
        count = tl.zeros((BLOCK_M, 1), tl.float32)
        for start in range(program * BLOCK_M, rows, programs * BLOCK_M):
            row = (start + tl.arange(0, BLOCK_M)[:, None]).to(tl.int64)
            is_row = row < rows
            exists = is_row & ok
            v = tl.load(x + row * channels + channel, mask=exists, other=0.0).to(tl.float32)
            count += is_row.to(tl.float32)
            d = tl.where(exists, v - about, 0.0)
            total += d
            squares += d * d
        n = tl.sum(count, axis=0)[None, :]
        s, q = tl.sum(total, axis=0)[None, :], tl.sum(squares, axis=0)[None, :]
        mean = s / tl.maximum(n, 1.0)
        place = partial + program * 3 * channels + channel
        tl.store(place, n + tl.zeros_like(mean), mask=ok)
        tl.store(place + channels, mean + about, mask=ok)
        tl.store(place + 2 * channels, q - s * mean, mask=ok)

    @triton.jit(do_not_specialize=["programs"])
    def finish_kernel(partial, gamma, beta, running_mean, running_var, out, channels, programs, momentum, eps,
                      BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr, CENTRED: tl.constexpr):
        """out: scale, shift, mean, 1/std; not centred: mean 0, running_var the mean square, beta and running_mean unused."""
        _, channel, ok = _place(channels, BLOCK_C)
        weight = tl.load(gamma + channel, mask=ok, other=0.0)
        old_var = tl.load(running_var + channel, mask=ok, other=0.0)
        about = tl.load(partial + channels + channel, mask=ok, other=0.0)
        n = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
        s = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
        q = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
        for start in range(0, programs, BLOCK_P):
            p = (start + tl.arange(0, BLOCK_P)[:, None]).to(tl.int64)
            exists = (p < programs) & ok
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
        if CENTRED:
            bias = tl.load(beta + channel, mask=ok, other=0.0)
            old_mean = tl.load(running_mean + channel, mask=ok, other=0.0)
            tl.store(running_mean + channel, old_mean + momentum * (mean - old_mean), mask=ok)
            unbiased = squares / tl.maximum(count_all - 1.0, 1.0)
            tl.store(running_var + channel, old_var + momentum * (unbiased - old_var), mask=ok)
            inverse = 1.0 / tl.sqrt(squares / divisor + eps)
            scale = weight * inverse
            shift = bias - mean * scale
        else:
            ms = squares / divisor + mean * mean
            tl.store(running_var + channel, old_var + momentum * (ms - old_var), mask=ok)
            inverse = 1.0 / tl.sqrt(ms + eps)
            scale = weight * inverse
            mean = mean * 0.0
            shift = mean
        tl.store(out + channel, scale, mask=ok)
        tl.store(out + channels + channel, shift, mask=ok)
        tl.store(out + 2 * channels + channel, mean, mask=ok)
        tl.store(out + 3 * channels + channel, inverse, mask=ok)

    @triton.jit
    def _coarse(row, SIDE: tl.constexpr, FACTOR: tl.constexpr):
        """The row of the coarse grid under a row of the fine one, SIDE x SIDE pixels."""
        image, pixel = row // (SIDE * SIDE), row % (SIDE * SIDE)
        y, x = pixel // SIDE, pixel % SIDE
        return image * ((SIDE // FACTOR) * (SIDE // FACTOR)) + (y // FACTOR) * (SIDE // FACTOR) + x // FACTOR

    @triton.jit(do_not_specialize=["rows"])
    def act_kernel(x, normal, context, y, rows, channels, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr, ACT: tl.constexpr,
                   FACTOR: tl.constexpr, SIDE: tl.constexpr):
        program, channel, ok = _place(channels, BLOCK_C)
        row = (program * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]).to(tl.int64)
        exists = (row < rows) & ok
        scale = tl.load(normal + channel, mask=ok, other=0.0)
        shift = tl.load(normal + channels + channel, mask=ok, other=0.0)
        h = tl.load(x + row * channels + channel, mask=exists, other=0.0).to(tl.float32) * scale + shift
        if FACTOR > 0:
            c = tl.load(context + _coarse(row, SIDE, FACTOR) * channels + channel, mask=exists, other=0.0).to(tl.float32)
            a = _act(h + c, ACT) - _act(c, ACT)
        else:
            a = _act(h, ACT)
        tl.store(y + row * channels + channel, a.to(y.dtype.element_ty), mask=exists)

    @triton.jit(do_not_specialize=["rows", "programs"])
    def sums_kernel(gradient, x, normal, context, partial, rows, channels, programs, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr,
                    ACT: tl.constexpr, FACTOR: tl.constexpr, SIDE: tl.constexpr):
        """Per program and channel: the gradient by what the activation saw, summed; and times the normalised x."""
        program, channel, ok = _place(channels, BLOCK_C)
        scale = tl.load(normal + channel, mask=ok, other=0.0)
        shift = tl.load(normal + channels + channel, mask=ok, other=0.0)
        mean = tl.load(normal + 2 * channels + channel, mask=ok, other=0.0)
        inverse = tl.load(normal + 3 * channels + channel, mask=ok, other=0.0)
        total = tl.zeros((BLOCK_M, BLOCK_C), tl.float32)
        along = tl.zeros((BLOCK_M, BLOCK_C), tl.float32)
        for start in range(program * BLOCK_M, rows, programs * BLOCK_M):
            row = (start + tl.arange(0, BLOCK_M)[:, None]).to(tl.int64)
            exists = (row < rows) & ok
            v = tl.load(x + row * channels + channel, mask=exists, other=0.0).to(tl.float32)
            g = tl.load(gradient + row * channels + channel, mask=exists, other=0.0).to(tl.float32)
            h = v * scale + shift
            if FACTOR > 0:
                h += tl.load(context + _coarse(row, SIDE, FACTOR) * channels + channel, mask=exists, other=0.0).to(tl.float32)
            d = g * _slope(h, ACT)
            total += d
            along += d * (v - mean)
        along *= inverse
        place = partial + program * 2 * channels + channel
        tl.store(place, tl.sum(total, axis=0)[None, :], mask=ok)
        tl.store(place + channels, tl.sum(along, axis=0)[None, :], mask=ok)

    @triton.jit(do_not_specialize=["programs"])
    def add_up_kernel(partial, out, width, programs, BLOCK_P: tl.constexpr, BLOCK_W: tl.constexpr):
        column = tl.program_id(0) * BLOCK_W + tl.arange(0, BLOCK_W)[None, :]
        total = tl.zeros((BLOCK_P, BLOCK_W), tl.float32)
        for start in range(0, programs, BLOCK_P):
            p = (start + tl.arange(0, BLOCK_P)[:, None]).to(tl.int64)
            total += tl.load(partial + p * width + column, mask=(p < programs) & (column < width), other=0.0)
        tl.store(out + column, tl.sum(total, axis=0)[None, :], mask=column < width)

    @triton.jit(do_not_specialize=["rows"])
    def backward_kernel(gradient, x, normal, sums, out, rows, channels, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr,
                        ACT: tl.constexpr, CENTRED: tl.constexpr):
        program, channel, ok = _place(channels, BLOCK_C)
        row = (program * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]).to(tl.int64)
        exists = (row < rows) & ok
        scale = tl.load(normal + channel, mask=ok, other=0.0)
        shift = tl.load(normal + channels + channel, mask=ok, other=0.0)
        mean = tl.load(normal + 2 * channels + channel, mask=ok, other=0.0)
        inverse = tl.load(normal + 3 * channels + channel, mask=ok, other=0.0)
        slope = tl.load(sums + channels + channel, mask=ok, other=0.0) / rows
        v = tl.load(x + row * channels + channel, mask=exists, other=0.0).to(tl.float32)
        d = tl.load(gradient + row * channels + channel, mask=exists, other=0.0).to(tl.float32) * _slope(v * scale + shift, ACT)
        if CENTRED:
            d -= tl.load(sums + channel, mask=ok, other=0.0) / rows
        answer = scale * (d - (v - mean) * inverse * slope)
        tl.store(out + row * channels + channel, answer.to(out.dtype.element_ty), mask=exists)

    @triton.jit(do_not_specialize=["rows", "coarse_rows"])
    def context_backward_kernel(gradient, x, normal, sums, context, out, by_context, rows, coarse_rows, channels,
                                BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr, ACT: tl.constexpr, FACTOR: tl.constexpr, SIDE: tl.constexpr):
        """Rows of the coarse grid; each sums over the pixels above it."""
        program, channel, ok = _place(channels, BLOCK_C)
        coarse = (program * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]).to(tl.int64)
        exists = (coarse < coarse_rows) & ok
        low: tl.constexpr = SIDE // FACTOR
        image, pixel = coarse // (low * low), coarse % (low * low)
        corner = image * (SIDE * SIDE) + (pixel // low) * FACTOR * SIDE + (pixel % low) * FACTOR
        scale = tl.load(normal + channel, mask=ok, other=0.0)
        inverse = tl.load(normal + 3 * channels + channel, mask=ok, other=0.0)
        slope = tl.load(sums + channels + channel, mask=ok, other=0.0) / rows
        c = tl.load(context + coarse * channels + channel, mask=exists, other=0.0).to(tl.float32)
        at_zero = _slope(c, ACT)
        by_c = tl.zeros((BLOCK_M, BLOCK_C), tl.float32)
        for k in tl.static_range(FACTOR * FACTOR):
            place = (corner + (k // FACTOR) * SIDE + k % FACTOR) * channels + channel
            v = tl.load(x + place, mask=exists, other=0.0).to(tl.float32)
            g = tl.load(gradient + place, mask=exists, other=0.0).to(tl.float32)
            here = _slope(v * scale + c, ACT)
            by_c += g * (here - at_zero)
            answer = scale * (g * here - v * inverse * slope)
            tl.store(out + place, answer.to(out.dtype.element_ty), mask=exists)
        tl.store(by_context + coarse * channels + channel, by_c.to(by_context.dtype.element_ty), mask=exists)


ACTS = {"none": 0, "relu": 1, "silu": 2}


def _power(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def _flat(channels: int, most: int = 128) -> tuple[int, dict]:
    wide = min(most, _power(channels))
    if channels % wide and channels % 64 == 0:
        wide = 64
    if channels % wide and channels % 32 == 0:
        wide = 32
    return -(-channels // wide), {"BLOCK_M": 2048 // wide, "BLOCK_C": wide, "num_warps": 4}


def _summing(rows: int, channels: int) -> tuple[int, int, dict]:
    across, blocks = _flat(channels, 64)
    return max(1, min(-(-rows // blocks["BLOCK_M"]), 528 // across)), across, blocks


def _join(programs: int) -> dict:
    return {"BLOCK_P": min(256, _power(programs)), "num_warps": 8 if programs > 128 else 4}


class _NormAct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gamma, beta, running_mean, running_var, momentum, eps, act, context, factor):
        x = x.contiguous(memory_format=torch.channels_last)
        b, channels, side, other = x.shape
        rows = b * side * other
        centred = beta is not None
        normal = torch.empty((4, channels), dtype=torch.float32, device=x.device)
        programs, across, blocks = _summing(rows, channels)
        partial = torch.empty((programs, 3, channels), dtype=torch.float32, device=x.device)
        moments_kernel[(programs * across,)](x, partial, rows, channels, programs, **blocks)
        finish_kernel[(-(-channels // 16),)](partial, gamma, beta if centred else gamma, running_mean if centred else running_var,
                                             running_var, normal, channels, programs, momentum, eps, BLOCK_C=16, CENTRED=centred, **_join(programs))
        y = torch.empty_like(x)
        if context is not None:
            assert side == other and context.shape == (b, channels, side // factor, side // factor) and context.dtype == x.dtype, (x.shape, context.shape, context.dtype)
            context = context.contiguous(memory_format=torch.channels_last)
        across, blocks = _flat(channels)
        kind, factor = ACTS[act], factor if context is not None else 0
        act_kernel[(-(-rows // blocks["BLOCK_M"]) * across,)](x, normal, x if context is None else context, y, rows, channels, **blocks,
                                                              ACT=kind, FACTOR=factor, SIDE=side if factor else 1)
        ctx.save_for_backward(x, normal, context)
        ctx.settings = (rows, channels, side, kind, centred, factor)  # the side matters with a context only: fewer variants to compile
        return y

    @staticmethod
    def backward(ctx, g):
        x, normal, context = ctx.saved_tensors
        rows, channels, side, kind, centred, factor = ctx.settings
        g = g.to(x.dtype).contiguous(memory_format=torch.channels_last)
        programs, across, blocks = _summing(rows, channels)
        partial = torch.empty((programs, 2, channels), dtype=torch.float32, device=x.device)
        sums = torch.empty((2, channels), dtype=torch.float32, device=x.device)
        sums_kernel[(programs * across,)](g, x, normal, x if context is None else context, partial, rows, channels, programs, **blocks,
                                          ACT=kind, FACTOR=factor, SIDE=side if factor else 1)
        add_up_kernel[(-(-2 * channels // 16),)](partial, sums, 2 * channels, programs, BLOCK_W=16, **_join(programs))
        out, by_context = torch.empty_like(x), None
        across, blocks = _flat(channels)
        if context is None:
            backward_kernel[(-(-rows // blocks["BLOCK_M"]) * across,)](g, x, normal, sums, out, rows, channels, **blocks, ACT=kind, CENTRED=centred)
        else:
            by_context = torch.empty_like(context)
            coarse = rows // factor**2
            context_backward_kernel[(-(-coarse // blocks["BLOCK_M"]) * across,)](g, x, normal, sums, context, out, by_context, rows, coarse, channels,
                                                                                **blocks, ACT=kind, FACTOR=factor, SIDE=side if factor else 1)
        return out, sums[1], sums[0] if centred else None, None, None, None, None, None, by_context, None


def norm_act(x, gamma, beta, running_mean, running_var, momentum, eps, act, context=None, factor=1):
    """In training mode; running moments are moved on in place. beta None: not centred, running_var is the mean square."""
    return _NormAct.apply(x, gamma, beta, running_mean, running_var, momentum, eps, act, context, factor)


def self_check(device, dtype=torch.bfloat16) -> float:
    """Largest relative deviation from plain torch, forward and backward; raises above 3%."""
    import torch.nn.functional as F

    worst = 0.0
    for act in ("relu", "silu", "none"):
        f = {"relu": F.relu, "silu": F.silu, "none": lambda t: t}[act]
        for centred, factor in ((True, 0), (False, 0), (False, 2), (False, 1)):
            for c in (24, 64, 96):
                torch.manual_seed(c)
                x = (torch.randn(6, c, 8, 8, device=device) * 2 + 1).to(dtype).contiguous(memory_format=torch.channels_last)
                ctx = torch.randn(6, c, 8 // factor, 8 // factor, device=device).to(dtype) if factor else None
                g, b = torch.rand(c, device=device) + 0.5, torch.randn(c, device=device)
                go = torch.randn(6, c, 8, 8, device=device)
                res = []
                for mine in (True, False):
                    rm, rv = torch.zeros(c, device=device), torch.ones(c, device=device)
                    wide = dtype if mine else torch.float64
                    leaf = [t.detach().clone().to(w).requires_grad_() for t, w in ((x, wide), (g, torch.float32 if mine else wide), (b, torch.float32 if mine else wide))]
                    lc = ctx.clone().to(wide).requires_grad_() if factor else None
                    if mine:
                        y = norm_act(leaf[0], leaf[1], leaf[2] if centred else None, rm if centred else None, rv, 0.1, 1e-5, act, lc, factor)
                    elif centred:
                        rm, rv = rm.double(), rv.double()
                        y = f(F.batch_norm(leaf[0], rm, rv, leaf[1], leaf[2], True, 0.1, 1e-5))
                    else:
                        ms = leaf[0].square().mean((0, 2, 3))
                        rv = rv.double().lerp(ms.detach(), 0.1)
                        h = leaf[0] * (leaf[1] * torch.rsqrt(ms + 1e-5)).view(1, -1, 1, 1)
                        if factor:
                            up = F.interpolate(lc, scale_factor=factor, mode="nearest")
                            y = f(h + up) - f(up)
                        else:
                            y = f(h)
                    y.backward(go.to(y.dtype))
                    res.append([y.detach(), leaf[0].grad, leaf[1].grad, rv] + ([leaf[2].grad, rm] if centred else []) + ([lc.grad] if factor else []))
                for a, r in zip(*res):
                    e = float((a.double() - r.double()).norm() / r.double().norm().clamp_min(1e-6))
                    worst = max(worst, e)
                    if not e < 3e-2:
                        raise RuntimeError(f"fused norm deviates by {e:.3g} ({act}, centred {centred}, factor {factor}, {c} channels)")
    return worst
