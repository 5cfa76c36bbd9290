"""How large a network may be: by arithmetic on its options before it is built, by its file while it is.

The numbers of a network may come from a stranger's `config.json`. Built first and compared with the weights after, they
would take any time and memory. The limits are far above what can be trained, and hold for networks built in code too.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from arrn.errors import ArrnError
from arrn.nn.introspection import forward_memory
from arrn.nn.layers import Resampling
from arrn.nn.network import as_network, channels_of
from arrn.runtime.serving.server_settings import parse_bytes
from arrn.signal.grid import Grid, Size, as_ladder, format_grid, level_at_least
from arrn.signal.kernels import Kernel
from arrn.signal.operators import axes_to_resample
from arrn.signal.resample import too_long_for_matrices

MOST: Mapping[str, float] = {
    "num_classes": 2**24,
    "in_channels": 2**16,
    "features": 2**16,
    "expansion": 2**10,
    "depth": 1000,
    "repeats": 1000,
    "own_stage": 1000,
    "sizes": 2**27,
    "blockless": 2**27,
    "size": 2**13,
    "width": 2**12,
    "modes": 2**10,
    "skip_first": 1000,
}
"""The largest number that an option of the library's networks may hold, by itself or in a list."""

LONGEST = 256
"""The most numbers in a list, such as the sizes of a ladder."""

MOST_LAYERS = 1000
"""Depthwise convolutions in all blocks of a ladder together."""

MOST_VALUES = 2**31
"""Hidden values of one sample on the grid of a level: channels times samples, 8 GiB in float32."""

MOST_MEMORY = 2**30
"""Bytes of signals that a network from a file may hold while it runs on one sample: 1 GiB.

With what convolutions and transforms take for themselves, the process grows by at most twice as much.
"""

MEMORY_VARIABLE = "ARRN_MAX_MEMORY"
"""The variable of the environment that allows more, such as 8GB."""

MOST_MATRIX_ENTRIES = 2**26
"""Entries of all the matrices that resample between the grids of a ladder, 0.5 GiB in float64."""

# What a builder may make and throw away beside the network: the ResNet that a narrower one is cut from, for example.
_SPARE_FACTOR, _SPARE = 4, 2**25

_described_by_file: ContextVar[bool] = ContextVar("described_by_file", default=False)


def check_options(model: str, options: Mapping[str, Any]) -> None:
    """Refuses options of one of the library's networks that are beyond `MOST` or `LONGEST`.

    >>> check_options("arrn", {"depth": [2, 10**6]})
    Traceback (most recent call last):
    arrn.errors.ArrnError: depth of model 'arrn' must be at most 1000, got 1000000

    Raises:
        ArrnError: with the option and its value.
    """
    for option, value in options.items():
        for number in _numbers(option, value):
            if option in MOST and number > MOST[option]:
                got = "a number far beyond" if 2**63 < number < math.inf else number
                raise ArrnError(f"{option} of model {model!r} must be at most {MOST[option]}, got {got}")


def seems_large(options: Mapping[str, Any]) -> bool:
    """Whether options may ask for more parameters than can be tried out at little cost.

    >>> seems_large({"num_classes": 1000, "in_channels": 3}), seems_large({"num_classes": 10**6})
    (False, True)
    """
    powers = {"num_classes": 1, "in_channels": 1, "features": 2, "expansion": 1, "width": 2, "modes": 2}
    largest = {option: max([1.0, *_numbers(option, options.get(option))]) for option in powers}
    return math.prod(largest[option] ** power for option, power in powers.items()) > 2**16


def _numbers(option: str, value: Any) -> Iterator[float]:
    """The numbers in a value, or in lists of lists of them; what else there is the builder refuses."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, int | float):
            yield item
        elif isinstance(item, list | tuple):
            if len(item) > LONGEST:
                raise ArrnError(f"{option} must have at most {LONGEST} entries, got {len(item)}")
            waiting.extend(item)


def check_ladder(
    ladder: Sequence[Grid],
    *,
    features: Sequence[int],
    expansion: Sequence[float],
    depth: Sequence[int],
    repeats: Sequence[int],
    kernel: Kernel,
    blockless: Sequence[Size] = (),
    lifted: Sequence[Grid] = (),
) -> None:
    """Refuses a ladder whose blocks, matrices or signals would be beyond the limits.

    Args:
        ladder: its grids, base last.
        features, expansion, depth, repeats: one number for each grid.
        kernel: what resamples between grids.
        blockless: grids without a block.
        lifted: the larger grids on which the levels work, one for each grid of the ladder, where they do.

    Raises:
        ArrnError: with the number and the limit.
    """
    layers = sum(d * r for d, r in zip(depth, repeats, strict=True))
    if layers > MOST_LAYERS:
        raise ArrnError(f"depth times repeats, over all sizes, must be at most {MOST_LAYERS}, got {layers}")
    for grid, channels, factor in zip(ladder, features, expansion, strict=True):
        hidden = max(channels, round(channels * factor))
        if hidden * math.prod(grid) > MOST_VALUES:
            raise ArrnError(
                f"{hidden} hidden channels on a grid of {format_grid(grid)} are {hidden * math.prod(grid):.2g} values "
                f"a sample, and should be at most {MOST_VALUES:.2g}"
            )
    between = as_ladder([ladder[0], *blockless], len(ladder[0]))[1:]
    steps = [(ladder[level_at_least(ladder, lower)], lower) for lower in between]
    lifts = [(higher, grid) for higher, grid in zip(lifted, ladder, strict=False) if higher != grid]
    check_matrices([*itertools.pairwise(ladder), *steps, *lifts], kernel)


def check_matrices(steps: Sequence[tuple[Grid, Grid]], kernel: Kernel) -> None:
    """Refuses steps between grids, down and up again, whose matrices have more than `MOST_MATRIX_ENTRIES` in all.

    Raises:
        ArrnError: with the number of entries.
    """
    entries = sum(
        2 * source[axis] * target[axis]
        for source, target in steps
        if not too_long_for_matrices(source, target, kernel)
        for axis in axes_to_resample(kernel, source, target)
    )
    if entries > MOST_MATRIX_ENTRIES:
        highest = max(itertools.chain(*steps), key=math.prod)
        raise ArrnError(
            f"below a grid of {format_grid(highest)}, the {kernel.name!r} kernel needs matrices of {entries:.2g} "
            f"entries, and may need {MOST_MATRIX_ENTRIES:.2g}: the 'perfect' kernel needs none on long lines"
        )


def most_memory() -> int:
    """`MOST_MEMORY`, or what the user allows by `MEMORY_VARIABLE`."""
    allowed = os.environ.get(MEMORY_VARIABLE)
    return MOST_MEMORY if allowed is None else parse_bytes(MEMORY_VARIABLE, allowed)


def check_memory(model: nn.Module) -> None:
    """Refuses a network that would take more than `most_memory` for one sample on its highest grid.

    A few numbers of a file can ask for any amount: wide layers on a large grid have few parameters.

    Raises:
        ArrnError: with the bytes that it would take.
    """
    network, channels, most = as_network(model), channels_of(model), most_memory()
    if not network.grids or channels is None:
        return
    # Levels may work on larger grids than their own.
    lifted = [part.target for part in model.modules() if isinstance(part, Resampling)]
    places = max(math.prod(grid) for grid in (network.grids[0], *lifted))
    widest = max((side for weight in model.parameters() for side in weight.shape[:2]), default=1)
    if 8 * 4 * widest * places <= most:  # far from it: eight signals of the widest layer, in float32
        return
    needed = forward_memory(model, (1, channels, *network.grids[0]))
    if needed > most:
        raise ArrnError(
            f"one sample on a grid of {format_grid(network.grids[0])} would take {needed / 1e9:.1f} GB of memory, and "
            f"{most / 1e9:.1f} GB are allowed: set the environment variable {MEMORY_VARIABLE}, such as "
            f"{MEMORY_VARIABLE}={math.ceil(1.2 * needed / 1e9)}GB, if you trust the file"
        )


@contextmanager
def built_within(elements: int) -> Iterator[None]:
    """Within it, no network is built in this thread that has many more parameters than a file with `elements`.

    A parameter is looked at when its module gets it, which for those of torch is before numbers are drawn for it: until
    then it takes no memory.

    Raises:
        ArrnError: with how many there are.
    """
    most, found, here = _SPARE_FACTOR * elements + _SPARE, 0, threading.get_ident()
    token = _described_by_file.set(True)

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal found
        if parameter is None or threading.get_ident() != here:
            return
        found += parameter.numel()
        if found > most:
            raise ArrnError(
                f"it describes a network of at least {found:,} parameters, but its weights are {elements:,} numbers"
            )

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()
        _described_by_file.reset(token)


def is_described_by_file() -> bool:
    """Whether a network is being built as a file describes it, within `built_within`.

    >>> with built_within(1000):
    ...     is_described_by_file()
    True
    """
    return _described_by_file.get()
