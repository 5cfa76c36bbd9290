"""Tied networks: one CNN that runs at every level, on the level's own grid, entered where the signal's details end.

The levels share every convolution and have norms of their own. A level's gate reads the energy of its band
(`LaplacianResidual`, form "gated"): with details, the features of the level above take the place of those that the
lower level finds by itself; without, the lower level's features are the answer, and all above is skipped exactly.
Beyond the paper; docs/notes/design_search.md tells how the designs were found.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from arrn.errors import ArrnError
from arrn.models.gated import sizes_between
from arrn.models.limits import check_ladder
from arrn.models.registry import AdaptiveOptions, as_whole, takes
from arrn.nn.arrn import ARRN
from arrn.nn.blocks import BasicBlock, Head
from arrn.nn.dropout import LaplacianDropout
from arrn.nn.junctions import VectorJunction, carrying
from arrn.nn.layers import BATCH_NORMS, CONVOLUTIONS, Borrowed, Resampling
from arrn.nn.residual import LaplacianResidual
from arrn.signal.grid import Grid, Size, as_ladder
from arrn.signal.kernels import Kernel
from arrn.signal.kernels import kernel as as_kernel


@dataclass(frozen=True, kw_only=True)
class TiedOptions(AdaptiveOptions):
    """The options of a tied network.

    Attributes:
        sizes: the ladder, highest first, base last; numbers, or tuples where axes differ.
        width: channels of the CNN's stages, each of which works on half the grid of the stage before it: one number for
            each stage, or the number of the first stage, which doubles from stage to stage.
        repeats: residual blocks in each stage, one number for each stage.
        own_repeats: residual blocks that belong to one level alone: one number for each level and the base; missing
            numbers at the end are zeros.
        own_stage: the stage that has these blocks, counted from 1: before the shared blocks of the first stage, or
            behind the block that begins a later one.
        lift: the grid on which a level works, as a multiple of the level's own grid: one number for the base, or
            several, for the lowest levels and, last, the base. 1 is the level's own grid, which the other levels have.
        ndim: axes of space: 1 (audio), 2 (images), 3 (volumes).
        threshold: details with this root mean square open a level's gate, in units of the (normalised) input.
        blockless: sizes between those of the ladder or under the base's, highest first, that Laplacian dropout also
            drops to, without a block of their own; ``"between"``: three quarters of each size, and half of the base's.
        head_dropout: dropout before the classifier.
    """

    dropout: float | Sequence[float] = 0.6

    sizes: Sequence[Size] = (32, 16, 8)
    width: int | Sequence[int] = 48
    repeats: Sequence[int] = (2, 2, 2, 2)
    own_repeats: Sequence[int] = (2,)
    own_stage: int = 2
    lift: float | Sequence[float] = (1.25, 2.0)
    ndim: int = 2
    threshold: float = 0.03
    blockless: Sequence[Size] | Literal["between"] = "between"
    head_dropout: float = 0.0


def build_tied(options: TiedOptions) -> ARRN:
    """An ARRN whose levels are one CNN; options as in `TiedOptions`.

    The CNN is a ResNet for small images. The base works on a larger grid than its own, since a network for 8x8 images
    is six points better on 16x16, at four times the arithmetic.
    """
    ladder = as_ladder(options.sizes, options.ndim)
    channels = as_whole("in_channels", options.in_channels, least=1)
    num_classes = as_whole("num_classes", options.num_classes, least=0)
    repeats = _as_counts("repeats", options.repeats, least=1)
    own = _as_counts("own_repeats", options.own_repeats, least=0)
    if not repeats or len(own) > len(ladder):
        raise ArrnError(
            f"repeats must be one number for each stage and own_repeats one for each of the {len(ladder)} sizes, got "
            f"{options.repeats!r} and {options.own_repeats!r}"
        )
    widths = _as_widths(options.width, len(repeats))
    own += [0] * (len(ladder) - len(own))
    own_stage = as_whole("own_stage", options.own_stage, least=1)
    if any(own) and own_stage > len(repeats):
        raise ArrnError(f"own_stage must be one of the {len(repeats)} stages of repeats, got {own_stage}")
    lifts = _as_lifts(options.lift, len(ladder))
    kernel = as_kernel(options.kernel)
    blockless = sizes_between(ladder, kernel) if options.blockless == "between" else options.blockless
    features = widths[-1]
    check_ladder(
        ladder,
        features=[max(widths)] * len(ladder),
        expansion=[1.0] * len(ladder),
        depth=[2] * len(ladder),
        repeats=[sum(repeats) + count for count in own],
        kernel=kernel,
        blockless=blockless,
        lifted=[_lifted_grid(grid, lift) for grid, lift in zip(ladder, lifts, strict=True)],
    )
    ndim = len(ladder[0])
    cnn = _resnet(channels, widths, repeats, ndim)
    networks = [*(_tied(cnn) for _ in ladder[1:]), cnn]
    junctions = []
    for n, (grid, network) in enumerate(zip(ladder, networks, strict=True)):
        lifted = _lifted(_with_own(network, widths, repeats, own[n], own_stage, ndim), grid, lifts[n], kernel)
        stage, ends_on = _last_stage_at(grid, _lifted_grid(grid, lifts[n]), len(repeats))
        later = sum(repeats[stage:]) + (own[n] if own_stage > stage else 0)
        junctions.append(
            VectorJunction(
                lifted,
                channels,
                features,
                ladder[n + 1] if n + 1 < len(ladder) else None,
                shows=len(lifted) - later,
                shown=widths[stage - 1],
                taken_to_grid=None if ends_on == grid else Resampling(ends_on, grid, kernel),
            )
        )
    residuals = [
        _residual(junction, size, next_size, options.threshold, kernel, above=n > 0)
        for n, (junction, (size, next_size)) in enumerate(zip(junctions[:-1], itertools.pairwise(ladder), strict=True))
    ]
    model = ARRN(
        stem=carrying(channels, 0),
        residuals=residuals,
        base=junctions[-1],
        head=Head(features, num_classes, options.head_dropout),
        dropout=LaplacianDropout(options.dropout, options.draw),
        policy=options.policy,
        blockless=blockless,
    )
    for module in model.modules():
        if isinstance(module, tuple(CONVOLUTIONS.values())):
            nn.init.kaiming_normal_(module.get_parameter("weight"), mode="fan_out", nonlinearity="relu")
    return model


def _resnet(channels: int, widths: Sequence[int], repeats: Sequence[int], ndim: int) -> nn.Sequential:
    """A ResNet without a head: convolution, norm and activation, then stages of blocks, each on half the grid."""
    convolution: Any = CONVOLUTIONS[ndim]
    given = widths[0]
    layers = [convolution(channels, given, 3, padding=1, bias=False), BATCH_NORMS[ndim](given), nn.ReLU()]
    for stage, (width, count) in enumerate(zip(widths, repeats, strict=True)):
        for n in range(count):
            layers.append(BasicBlock(given, width, 2 if stage and not n else 1, ndim))
            given = width
    return nn.Sequential(*layers)


def _tied(cnn: nn.Sequential) -> nn.Sequential:
    """The same CNN with the very same convolutions, and norms of its own."""
    tied = copy.deepcopy(cnn)
    kinds: tuple[type[nn.Module], ...] = tuple(CONVOLUTIONS.values())
    for name, module in cnn.named_modules():
        if isinstance(module, kinds):
            tied.set_submodule(name, Borrowed(module))
    return tied


def _with_own(
    cnn: nn.Sequential, widths: Sequence[int], repeats: Sequence[int], count: int, stage: int, ndim: int
) -> nn.Sequential:
    """With `count` more blocks in a stage, where the signal has the stage's channels already."""
    before = 3 + (sum(repeats[: stage - 1]) + 1 if stage > 1 else 0)
    own = (BasicBlock(widths[stage - 1], widths[stage - 1], ndim=ndim) for _ in range(count))
    return nn.Sequential(*cnn[:before], *own, *cnn[before:])


def _lifted_grid(grid: Grid, lift: float) -> Grid:
    return tuple(max(1, round(n * lift)) for n in grid)


def _lifted(network: nn.Sequential, grid: Grid, lift: float, kernel: Kernel) -> nn.Sequential:
    higher = _lifted_grid(grid, lift)
    return network if higher == grid else nn.Sequential(Resampling(grid, higher, kernel), *network)


def _last_stage_at(grid: Grid, lifted: Grid, stages: int) -> tuple[int, Grid]:
    """The last stage of a CNN whose own grid is at least `grid`, counted from 1, and the stage's grid.

    >>> _last_stage_at((8,), (16,), 4), _last_stage_at((16,), (20,), 4)
    ((2, (8,)), (1, (20,)))
    """
    stage, here = 1, lifted
    while stage < stages and all(-(-n // 2) >= m for n, m in zip(here, grid, strict=True)):
        stage, here = stage + 1, tuple(-(-n // 2) for n in here)
    return stage, here


def _residual(
    junction: VectorJunction, size: Grid, next_size: Grid, threshold: float, kernel: Kernel, *, above: bool
) -> LaplacianResidual:
    channels, features = junction.channels, junction.features
    taken = channels + above * (1 + junction.laid_out(features, size))
    given = channels + 1 + junction.laid_out(features, next_size)
    residual = LaplacianResidual(
        junction,
        taken,
        given,
        size,
        next_size,
        kernel,
        form="gated",
        threshold=threshold,
        saturates=True,
        reads=channels,
        check=False,  # its blocks are ours
    )
    residual.projection = carrying(channels, given - channels, taken)
    return residual


def _as_counts(name: str, given: Any, *, least: int) -> list[int]:
    counts = list(given) if isinstance(given, list | tuple) else [given]
    return [as_whole(name, count, least=least) for count in counts]


def _as_widths(given: Any, stages: int) -> list[int]:
    if not isinstance(given, list | tuple):
        first = as_whole("width", given, least=1)
        return [first * 2**stage for stage in range(stages)]
    if len(given) != stages:
        raise ArrnError(f"width must be one number, or one for each of the {stages} stages of repeats, got {given!r}")
    return _as_counts("width", given, least=1)


def _as_lifts(given: Any, count: int) -> list[float]:
    values = list(given) if isinstance(given, list | tuple) else [given]
    wrong = any(isinstance(n, bool) or not isinstance(n, int | float) or not 1 <= n <= 8 for n in values)
    if wrong or not 1 <= len(values) <= count:
        raise ArrnError(
            f"lift must be a number from 1 to 8, or a list of at most {count} such numbers, one for each of the lowest "
            f"levels and last the base's, got {given!r}"
        )
    return [1.0] * (count - len(values)) + [float(n) for n in values]


TIED_DESIGNS = {"arrn_medium": TiedOptions(), "arrn_mini": TiedOptions(width=16)}
"""Designs that differ in their width; every option can be given anew, for any ladder."""

tied_builders = {name: takes(options)(build_tied) for name, options in TIED_DESIGNS.items()}
