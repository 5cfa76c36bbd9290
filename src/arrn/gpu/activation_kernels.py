"""Triton functions: the sigmoid and SiLU, in few instructions."""

from __future__ import annotations

import os

import torch
import triton
import triton.language as tl

__all__ = ["sigmoid", "silu", "silu_slope"]

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
