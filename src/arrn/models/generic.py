"""The generic builder: an ARRN on any ladder, in 1 to 3 axes of space, from its options."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, TypeVar

from torch import nn

from arrn.errors import ArrnError, unknown_name
from arrn.models.limits import check_ladder
from arrn.models.registry import AdaptiveOptions, as_whole, takes
from arrn.nn.arrn import ARRN
from arrn.nn.blocks import DenseBlock, Head, InvertedBlock, ResidualBase, ResidualStack, ZeroPreservingBlock
from arrn.nn.difference import Form
from arrn.nn.dropout import LaplacianDropout
from arrn.nn.layers import CONVOLUTIONS, Projection
from arrn.nn.residual import LaplacianResidual
from arrn.signal.grid import Grid, Size, as_ladder, format_grid
from arrn.signal.kernels import KernelLike
from arrn.signal.kernels import kernel as as_kernel


@dataclass(frozen=True, kw_only=True)
class DesignOptions(AdaptiveOptions):
    """What a named design leaves open.

    Attributes:
        block: the residuals' blocks: ``"inverted"`` (the paper's), ``"zero_preserving"`` (with low-band context) or,
            in difference and gated form, ``"dense"`` (`DenseBlock`).
        base_block: the base's: ``"inverted"`` or ``"dense"``; None: dense where the residuals' are, else inverted.
        form: ``"paper"``, ``"difference"`` or ``"gated"``, see `LaplacianResidual`.
        hand_down: what takes a block's contribution to the next grid: ``"kernel"`` (the network's own smoothing),
            another kernel, or ``"strided"`` (a convolution with a step; each size must be a multiple of the next).
        bracket_norm: in difference form, divide the bracket by its root mean square.
        blockless: sizes between those of the ladder or under the base's, highest first, that Laplacian dropout also
            drops to, without a block of their own.
        block_dropout: the share of hidden channels that every block, the base's too, loses in training.
    """

    block: str = "inverted"
    base_block: str | None = None
    form: Form = "paper"
    hand_down: KernelLike = "kernel"
    bracket_norm: bool = False
    blockless: Sequence[Size] = ()
    block_dropout: float = 0.0


@dataclass(frozen=True, kw_only=True)
class LadderOptions(DesignOptions):
    """The options of the generic builder: those of `DesignOptions`, and the ladder.

    Attributes:
        sizes: the ladder, highest first, base last; numbers, or tuples where axes differ.
        features: channels at each size.
        expansion: hidden channels per feature, one number or one per size (the base's last).
        depth: depthwise convolutions per block (dense ones where it is ``"dense"``), one number or one per size (the
            base's last).
        repeats: blocks per size, one number or one per size (the base's last); several, and dense ones, are a
            `ResidualStack`.
        ndim: axes of space: 1 (audio), 2 (images), 3 (volumes).
        head_dropout: dropout before the classifier.
    """

    sizes: Sequence[Size] = (32, 16, 8)
    features: Sequence[int] = (64, 128, 256)
    expansion: float | Sequence[float] = 4
    depth: int | Sequence[int] = 2
    repeats: int | Sequence[int] = 1
    ndim: int = 2
    head_dropout: float = 0.2


_BLOCKS: dict[str, type[nn.Module]] = {
    "inverted": InvertedBlock,
    "zero_preserving": ZeroPreservingBlock,
    "dense": DenseBlock,
}
_BASE_BLOCKS = {name: _BLOCKS[name] for name in ("inverted", "dense")}


@takes(LadderOptions())
def build_arrn(options: LadderOptions) -> ARRN:
    """An ARRN with one residual from each size to the next and a base on the last; options as in `LadderOptions`.

    >>> build_arrn(sizes=(64, 20), features=(4, 8), ndim=1, in_channels=1).sizes
    (64, 20)
    """
    if options.block not in _BLOCKS:
        raise unknown_name("block", options.block, _BLOCKS)
    if options.block == "dense" and options.form == "paper":
        raise ArrnError(
            "block='dense' pads with zeros, so its answer to a zero input varies over space, which form='paper' cannot "
            "skip exactly: give form='gated' or form='difference'"
        )
    base_block = options.base_block or ("dense" if options.block == "dense" else "inverted")
    if base_block not in _BASE_BLOCKS:
        raise unknown_name("base_block", base_block, _BASE_BLOCKS)
    ladder = as_ladder(options.sizes, options.ndim)
    features = _per_size("features", options.features, len(ladder), int)
    expansion = _per_size("expansion", options.expansion, len(ladder), float)
    depth = _per_size("depth", options.depth, len(ladder), int)
    repeats = _per_size("repeats", options.repeats, len(ladder), int)
    in_channels = as_whole("in_channels", options.in_channels, least=1)
    num_classes = as_whole("num_classes", options.num_classes, least=0)
    kernel = as_kernel(options.kernel)
    check_ladder(
        ladder,
        features=features,
        expansion=expansion,
        depth=depth,
        repeats=repeats,
        kernel=kernel,
        blockless=options.blockless,
    )
    strided = options.hand_down == "strided"

    def blocks(kind: type[nn.Module], n: int) -> list[nn.Module]:
        shape = (features[n], expansion[n], depth[n], options.ndim, options.block_dropout)
        return [kind(*shape) for _ in range(repeats[n])]

    def residual(n: int) -> LaplacianResidual:
        several = blocks(_BLOCKS[options.block], n)
        alone = len(several) == 1 and options.block != "dense"
        grids = ladder[n], ladder[n + 1]
        return LaplacianResidual(
            several[0] if alone else ResidualStack(*several),
            features[n],
            features[n + 1],
            *grids,
            kernel,
            form=options.form,
            hand_down=_strided(features[n], features[n + 1], *grids) if strided else options.hand_down,
            bracket_norm=options.bracket_norm,
            check=False,  # these blocks are ours and tested: checking them took most of the time that building did
        )

    return ARRN(
        residuals=[residual(n) for n in range(len(ladder) - 1)],
        stem=Projection(in_channels, features[0]),
        base=(ResidualStack if repeats[-1] > 1 else ResidualBase)(*blocks(_BASE_BLOCKS[base_block], -1)),
        head=Head(features[-1], num_classes, options.head_dropout),
        dropout=LaplacianDropout(options.dropout, options.draw),
        policy=options.policy,
        blockless=options.blockless,
    )


def _strided(features: int, next_features: int, size: Grid, next_size: Grid) -> nn.Module:
    """Hands every sample of a grid down to the next, each patch as one: a convolution as long as its step."""
    if any(n % m for n, m in zip(size, next_size, strict=True)):
        raise ArrnError(
            f"hand_down='strided' needs sizes of which each is a multiple of the next, got {format_grid(size)} and "
            f"{format_grid(next_size)}"
        )
    step = tuple(n // m for n, m in zip(size, next_size, strict=True))
    convolution: Callable[..., nn.Module] = CONVOLUTIONS[len(size)]
    return convolution(features, next_features, step, stride=step, bias=False)


Number = TypeVar("Number", int, float)


def _per_size(name: str, value: Any, count: int, kind: type[Number]) -> list[Number]:
    """One positive number for every size, from one number or a sequence of them."""
    values = list(value) if isinstance(value, list | tuple) else [value] * count
    if (name == "features" and not isinstance(value, list | tuple)) or len(values) != count:
        raise ArrnError(f"{name} must have one value for each of the {count} sizes, got {value!r}")
    for item in values:
        allowed = Integral if kind is int else Real
        if isinstance(item, bool) or not isinstance(item, allowed) or not 0 < float(item) < math.inf:
            what = "whole number" if kind is int else "number"
            raise ArrnError(f"{name} must be a positive {what} for each size, got {item!r} in {value!r}")
    return [kind(item) for item in values]
