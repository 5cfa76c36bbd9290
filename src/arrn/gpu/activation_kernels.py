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
def sigmoid(h):
    """1 / (1 + exp(-h))."""
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
def silu(h):
    """h times its sigmoid."""
    return h * sigmoid(h)


@triton.jit
def silu_slope(h):
    """The derivative of SiLU."""
    s = sigmoid(h)
    return s + h * s * (1.0 - s)
