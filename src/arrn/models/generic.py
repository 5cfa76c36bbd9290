"""Checking the options of a model."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

from torch import nn

from arrn.errors import ArrnError, unknown_name
from arrn.nn.arrn import ARRN, Policy
from arrn.nn.blocks import InvertedBlock, ResidualStack, ZeroPreservingBlock
from arrn.nn.dropout import Draw, LaplacianDropout
from arrn.nn.head import Head, ResidualBase
from arrn.nn.projection import Projection
from arrn.nn.residual import LaplacianResidual, Rejection
from arrn.signal.grid import Size, as_ladder
from arrn.signal.kernels import KernelLike
from arrn.signal.kernels import kernel as as_kernel


def as_whole(name: str, value: object, least: int) -> int:
    """`value`, numpy's too, as a whole number of at least `least`; refuses others, by the option's name.

    >>> as_whole("num_classes", 10, least=0)
    10
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ArrnError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


_BLOCKS: dict[str, type[nn.Module]] = {"inverted": InvertedBlock, "zero_preserving": ZeroPreservingBlock}

Number = TypeVar("Number", int, float)


def build_arrn(
    sizes: Sequence[Size] = (32, 16, 8),
    features: Sequence[int] = (64, 128, 256),
    expansion: float | Sequence[float] = 4,
    depth: int | Sequence[int] = 2,
    ndim: int = 2,
    num_classes: int = 10,
    in_channels: int = 3,
    kernel: KernelLike = "perfect",
    dropout: float | Sequence[float] = 0.0,
    draw: Draw = "stratified",
    policy: Policy = "exact",
    block: str = "inverted",
    head_dropout: float = 0.2,
    blockless: Sequence[Size] = (),
    block_dropout: float = 0.0,
    rejection: Rejection = "mean",
    repeats: int | Sequence[int] = 1,
) -> ARRN:
    """An ARRN with one residual from each size to the next and a base on the last.

    Args:
        sizes: the ladder, highest first, base last; numbers, or tuples where axes differ.
        features: channels at each size.
        expansion: hidden channels per feature, one number or one per size (the base's last).
        depth: depthwise convolutions per block, one number or one per size (the base's last).
        ndim: axes of space: 1 (audio), 2 (images), 3 (volumes).
        num_classes: outputs; 0 returns pooled features.
        in_channels: channels of the input.
        kernel: ``"perfect"``, ``"fair"``, ``"poor"``, a kernel, or its `kernel_options`.
        dropout: Laplacian dropout's p, one number, the probability of dropping each residual, or one per residual and
            size in `blockless`, highest first.
        draw: how Laplacian dropout draws: ``"stratified"``, ``"sample"`` or ``"batch"``.
        policy: ``"exact"`` or ``"cheap"``, for sizes between two grids.
        block: the residuals' blocks: ``"inverted"`` (the paper's) or ``"zero_preserving"``
            (with low-band context); the base's is always ``"inverted"``.
        head_dropout: dropout before the classifier.
        blockless: sizes between those of the ladder or under the base's, highest first, that Laplacian dropout also
            drops to.
        block_dropout: the share of hidden channels that every block, the base's too, loses in training.
        rejection: the constant that levels reject: ``"mean"`` (the paper's) or ``"response"`` (`LaplacianResidual`).
        repeats: blocks per size, one number or one per size (the base's last); several are a `ResidualStack`.

    >>> build_arrn(sizes=(64, 20), features=(4, 8), ndim=1, in_channels=1).sizes
    (64, 20)
    """
    if block not in _BLOCKS:
        raise unknown_name("block", block, _BLOCKS)
    ladder = as_ladder(sizes, ndim)
    widths = _per_size("features", features, len(ladder), int)
    expansions = _per_size("expansion", expansion, len(ladder), float)
    depths = _per_size("depth", depth, len(ladder), int)
    counts = _per_size("repeats", repeats, len(ladder), int)
    in_channels = as_whole("in_channels", in_channels, 1)
    num_classes = as_whole("num_classes", num_classes, 0)
    smoothing = as_kernel(kernel)

    def make(kind: type[nn.Module], n: int) -> list[nn.Module]:
        return [kind(widths[n], expansions[n], depths[n], ndim, block_dropout) for _ in range(counts[n])]

    residuals = [
        LaplacianResidual(
            _one(make(_BLOCKS[block], n)),
            widths[n],
            widths[n + 1],
            ladder[n],
            ladder[n + 1],
            smoothing,
            rejection=rejection,
            check=False,  # these blocks are ours and tested; checking took most of the time that building did
        )
        for n in range(len(ladder) - 1)
    ]
    return ARRN(
        stem=Projection(in_channels, widths[0]),
        residuals=residuals,
        base=ResidualStack(*make(InvertedBlock, -1)) if counts[-1] > 1 else ResidualBase(*make(InvertedBlock, -1)),
        head=Head(widths[-1], num_classes, head_dropout),
        dropout=LaplacianDropout(dropout, draw),
        policy=policy,
        blockless=blockless,
    )


def _one(blocks: list[nn.Module]) -> nn.Module:
    return blocks[0] if len(blocks) == 1 else ResidualStack(*blocks)


def _per_size(name: str, value: Any, count: int, kind: type[Number]) -> list[Number]:
    """One positive number for every size, from one number or a sequence of them."""
    values = list(value) if isinstance(value, list | tuple) else [value] * count
    if (name == "features" and not isinstance(value, list | tuple)) or len(values) != count:
        raise ArrnError(f"{name} must have one value for each of the {count} sizes, got {value!r}")
    for item in values:
        allowed = Integral if kind is int else Real
        if isinstance(item, bool) or not isinstance(item, allowed) or not float(item) > 0:
            what = "whole number" if kind is int else "number"
            raise ArrnError(f"{name} must be a positive {what} for each size, got {item!r} in {value!r}")
    return [kind(item) for item in values]
