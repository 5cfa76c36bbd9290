"""The generic builder: an ARRN on any ladder, in 1 to 3 axes of space, from its options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, TypeVar

from torch import nn

from arrn.errors import ArrnError, unknown_name
from arrn.models.registry import AdaptiveOptions, as_whole, takes
from arrn.nn.arrn import ARRN
from arrn.nn.blocks import Head, InvertedBlock, ResidualBase, ResidualStack, ZeroPreservingBlock
from arrn.nn.dropout import LaplacianDropout
from arrn.nn.layers import Projection
from arrn.nn.residual import LaplacianResidual
from arrn.signal.grid import Size, as_ladder
from arrn.signal.kernels import kernel as as_kernel


@dataclass(frozen=True, kw_only=True)
class DesignOptions(AdaptiveOptions):
    """What a named design leaves open.

    Attributes:
        block: the residuals' blocks: ``"inverted"`` (the paper's) or ``"zero_preserving"``
            (with low-band context); the base's is always ``"inverted"``.
        blockless: sizes between those of the ladder or under the base's, highest first, that Laplacian dropout also
            drops to, without a block of their own.
        block_dropout: the share of hidden channels that every block, the base's too, loses in training.
    """

    block: str = "inverted"
    blockless: Sequence[Size] = ()
    block_dropout: float = 0.0


@dataclass(frozen=True, kw_only=True)
class LadderOptions(DesignOptions):
    """What the generic builder can be told: all that `DesignOptions` has, and the ladder.

    Attributes:
        sizes: the ladder, highest first, base last; numbers, or tuples where axes differ.
        features: channels at each size.
        expansion: hidden channels per feature, one number or one per size (the base's last).
        depth: depthwise convolutions per block, one number or one per size (the base's last).
        repeats: blocks per size, one number or one per size (the base's last); several are a `ResidualStack`.
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


_BLOCKS: dict[str, type[nn.Module]] = {"inverted": InvertedBlock, "zero_preserving": ZeroPreservingBlock}


@takes(LadderOptions())
def build_arrn(options: LadderOptions) -> ARRN:
    """An ARRN with one residual from each size to the next and a base on the last; options as in `LadderOptions`.

    >>> build_arrn(sizes=(64, 20), features=(4, 8), ndim=1, in_channels=1).sizes
    (64, 20)
    """
    if options.block not in _BLOCKS:
        raise unknown_name("block", options.block, _BLOCKS)
    ladder = as_ladder(options.sizes, options.ndim)
    features = _per_size("features", options.features, len(ladder), int)
    expansion = _per_size("expansion", options.expansion, len(ladder), float)
    depth = _per_size("depth", options.depth, len(ladder), int)
    repeats = _per_size("repeats", options.repeats, len(ladder), int)
    in_channels = as_whole("in_channels", options.in_channels, least=1)
    num_classes = as_whole("num_classes", options.num_classes, least=0)
    kernel = as_kernel(options.kernel)

    def blocks(kind: type[nn.Module], n: int) -> list[nn.Module]:
        shape = (features[n], expansion[n], depth[n], options.ndim, options.block_dropout)
        return [kind(*shape) for _ in range(repeats[n])]

    def residual(n: int) -> LaplacianResidual:
        several = blocks(_BLOCKS[options.block], n)
        block = several[0] if len(several) == 1 else ResidualStack(*several)
        # These blocks are ours and tested: checking them took most of the time that building did.
        return LaplacianResidual(block, features[n], features[n + 1], ladder[n], ladder[n + 1], kernel, check=False)

    return ARRN(
        residuals=[residual(n) for n in range(len(ladder) - 1)],
        stem=Projection(in_channels, features[0]),
        base=(ResidualStack if repeats[-1] > 1 else ResidualBase)(*blocks(InvertedBlock, -1)),
        head=Head(features[-1], num_classes, options.head_dropout),
        dropout=LaplacianDropout(options.dropout, options.draw),
        policy=options.policy,
        blockless=options.blockless,
    )


Number = TypeVar("Number", int, float)


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
