"""Gated networks: an ordinary CNN for every level, entered at its own grid, all sharing what lies below.

A level's gate reads the energy of its band (`LaplacianResidual`, form "gated"). With details the features of the level
above take the place of those that the lower level would make itself; without, the lower level starts by itself, and all
above is skipped exactly. Beyond the paper; how the designs were found: docs/notes/design_search.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

from torch import nn

from arrn.errors import ArrnError
from arrn.models.limits import check_ladder
from arrn.models.registry import AdaptiveOptions, as_whole, takes
from arrn.nn.arrn import ARRN
from arrn.nn.blocks import DenseBlock, Head, ResidualStack, StridedBlock
from arrn.nn.dropout import LaplacianDropout
from arrn.nn.junctions import Junction, carrying
from arrn.nn.layers import BATCH_NORMS, CONVOLUTIONS, Resampling
from arrn.nn.residual import LaplacianResidual
from arrn.signal.grid import Grid, Size, as_ladder, format_sizes
from arrn.signal.kernels import Kernel
from arrn.signal.kernels import kernel as as_kernel


@dataclass(frozen=True, kw_only=True)
class GatedOptions(AdaptiveOptions):
    """The options of a gated network.

    Attributes:
        sizes: the ladder, highest first, base last; numbers, or tuples where axes differ.
        width: channels of the top level. Each level below has 3/4 of `width` more than the level above; the base's own
            entry has 7/8 of `width`, and the layers behind the base's grid 4 times `width`; in multiples of 4.
        repeats: residual blocks on the grid of each level above the base, before the block that hands down: one number
            or one for each.
        base_repeats: residual blocks behind the base's own grid.
        ndim: axes of space: 1 (audio), 2 (images), 3 (volumes).
        threshold: details with this root mean square open a level's gate half, in units of the (normalised) input.
        blockless: sizes between those of the ladder or under the base's, highest first, that Laplacian dropout also
            drops to, without a block of their own; ``"between"``: three quarters of each size, and half of the base's.
        head_dropout: dropout before the classifier.
    """

    dropout: float | Sequence[float] = 0.6

    sizes: Sequence[Size] = (32, 16, 8)
    width: int = 64
    repeats: int | Sequence[int] = (2, 1)
    base_repeats: int = 2
    ndim: int = 2
    threshold: float = 0.03
    blockless: Sequence[Size] | Literal["between"] = "between"
    head_dropout: float = 0.0


def build_gated(options: GatedOptions) -> ARRN:
    """An ARRN of gated residuals; options as in `GatedOptions`.

    The base takes its input to twice its grid and back again by a strided block: on a grid of 8, a network for 8x8
    images is three points better if it works on 16x16 first, at equal arithmetic.
    """
    ladder = as_ladder(options.sizes, options.ndim)
    channels = as_whole("in_channels", options.in_channels, least=1)
    width = as_whole("width", options.width, least=4)
    num_classes = as_whole("num_classes", options.num_classes, least=0)
    repeats = _for_each_level(options.repeats, len(ladder) - 1)
    kernel = as_kernel(options.kernel)
    blockless = sizes_between(ladder, kernel) if options.blockless == "between" else options.blockless
    features = [_in_fours(width * (1 + 0.75 * n)) for n in range(len(ladder))]
    tail = _in_fours(4 * width)
    check_ladder(
        ladder,
        features=[*features[:-1], tail],
        expansion=[1.0] * len(ladder),
        depth=[2] * len(ladder),
        repeats=[*repeats, 2 + as_whole("base_repeats", options.base_repeats, least=1)],
        kernel=kernel,
        blockless=blockless,
        lifted=[*ladder[:-1], tuple(2 * n for n in ladder[-1])],
    )
    residuals = [
        _residual(grids, features[n : n + 2], channels, above=n > 0, repeats=repeats[n], options=options, kernel=kernel)
        for n, grids in enumerate(itertools.pairwise(ladder))
    ]
    model = ARRN(
        stem=carrying(channels, 0),
        residuals=residuals,
        base=_base(ladder[-1], channels, width, features[-1], tail, options.base_repeats, kernel),
        head=Head(tail, num_classes, options.head_dropout),
        dropout=LaplacianDropout(options.dropout, options.draw),
        policy=options.policy,
        blockless=blockless,
    )
    for module in model.modules():
        if isinstance(module, tuple(CONVOLUTIONS.values())):
            nn.init.kaiming_normal_(module.get_parameter("weight"), nonlinearity="relu")
    return model


def _residual(
    grids: tuple[Grid, Grid],
    features: Sequence[int],
    channels: int,
    *,
    above: bool,
    repeats: int,
    options: GatedOptions,
    kernel: Kernel,
) -> LaplacianResidual:
    size, next_size = grids
    here, below = features
    ndim = len(size)
    dense = _dense(here, repeats, ndim)
    body = nn.Sequential(*dense, *_down(size, next_size, here, below, kernel))
    taken = channels + above * (1 + here)
    residual = LaplacianResidual(
        Junction(_convolution(channels, here, ndim), body, channels, features=here, stays=len(dense)),
        taken,
        channels + 1 + below,
        size,
        next_size,
        kernel,
        form="gated",
        threshold=options.threshold,
        reads=channels,
        check=False,  # its blocks are ours
    )
    residual.projection = carrying(channels, 1 + below, taken)
    return residual


def _base(grid: Grid, channels: int, width: int, features: int, tail: int, repeats: int, kernel: Kernel) -> nn.Module:
    """The last junction: its own entry on twice the grid, what follows it at half, where that is whole."""
    ndim, own = len(grid), _in_fours(width * 0.875)
    twice = tuple(2 * n for n in grid)
    entry = nn.Sequential(
        Resampling(grid, twice, kernel),
        _convolution(channels, own, ndim),
        *_dense(own, 1, ndim),
        StridedBlock(own, features, 2, ndim),
    )
    halves = 2 if all(n % 2 == 0 and n > 2 for n in grid) else 1
    body = nn.Sequential(
        StridedBlock(features, tail, halves, ndim),
        *_dense(tail, repeats - 1, ndim),
        BATCH_NORMS[ndim](tail),
        nn.SiLU(),
    )
    return Junction(entry, body, channels, ends=True, features=features)


def sizes_between(ladder: Sequence[Grid], kernel: Kernel) -> list[Size]:
    """Three quarters of each size, and half of the base's, where that is neither of two neighbours in the ladder."""
    base = ladder[-1]
    wanted = [(grid, 3) for grid in ladder] + [(base, 2)]
    found = [*ladder]
    for grid, quarters in wanted:
        lower = tuple(max(1, n * quarters // 4) for n in grid)
        below = next((m for m in ladder if ladder.index(m) > ladder.index(grid)), (1,) * len(base))
        loses = all(kernel.band(n) == kernel.band(m) for n, m in zip(grid, lower, strict=True))
        if lower not in found and not loses and all(m <= n for m, n in zip(below, lower, strict=True)):
            found.append(lower)
    return [format_sizes([grid])[0] for grid in found[len(ladder) :]]


def _dense(features: int, repeats: int, ndim: int) -> list[nn.Module]:
    """Residual blocks that keep channels and grid, as one stack; none for no repeats."""
    blocks = [DenseBlock(features, ndim=ndim, activation=nn.SiLU) for _ in range(repeats)]
    return [ResidualStack(*blocks)] if blocks else []


def _down(size: Grid, next_size: Grid, features: int, next_features: int, kernel: Kernel) -> list[nn.Module]:
    """From a grid to the next: by a stride where that is a whole number, else by the kernel."""
    if any(n % m for n, m in zip(size, next_size, strict=True)):
        return [Resampling(size, next_size, kernel), StridedBlock(features, next_features, 1, len(size))]
    steps = [n // m for n, m in zip(size, next_size, strict=True)]
    return [StridedBlock(features, next_features, steps, len(size))]


def _convolution(channels: int, features: int, ndim: int) -> nn.Module:
    entry: nn.Module = CONVOLUTIONS[ndim](channels, features, 3, padding=1, bias=False)
    return entry


def _in_fours(features: float) -> int:
    return max(4, 4 * round(features / 4))


def _for_each_level(repeats: int | Sequence[int], levels: int) -> list[int]:
    """One number of blocks for each level above the base; a shorter list goes on with its last number."""
    given: list[Any] = list(repeats) if isinstance(repeats, list | tuple) else [repeats]
    if not given or any(isinstance(n, bool) or not isinstance(n, Integral) or n < 0 for n in given):
        raise ArrnError(f"repeats must be whole numbers of at least 0, got {repeats!r}")
    if len(given) > levels > 1:
        raise ArrnError(f"repeats must have at most one number for each of the {levels} levels, got {repeats!r}")
    counts = [int(n) for n in given]
    return (counts + counts[-1:] * levels)[:levels]


GATED_DESIGNS = {"arrn_pyramid": GatedOptions(width=20)}
"""Designs by name; every option can be given anew, for any ladder."""

gated_builders = {name: takes(options)(build_gated) for name, options in GATED_DESIGNS.items()}
