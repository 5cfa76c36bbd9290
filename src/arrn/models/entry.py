"""Where an input enters a network: the grid it is brought to, whatever kind of network it is."""

from __future__ import annotations

from torch import nn

from arrn.models.fixed import ResampledNetwork
from arrn.models.rivals import FourierClassifier
from arrn.nn.arrn import ARRN, Policy
from arrn.signal.grid import Grid, covers, level_at_least
from arrn.signal.kernels import Kernel, kernel


def entry_grid(model: nn.Module, size: Grid, policy: Policy | None = None, adapt: bool = True) -> Grid:
    """The grid on which an input of `size` enters `model`.

    Inputs of differing sizes that share it can be brought there and stacked: for an ARRN the grid of
    the level that `policy` picks (the top grid without `adapt`), for a fixed-resolution network its
    native size, for one that runs at any size the input's own, at most its native one.

    >>> from arrn.models import create_model
    >>> entry_grid(create_model("arrn"), (11, 7))
    (16, 16)
    """
    if isinstance(model, ARRN):
        return model.grids[model.level(size, policy) if adapt else 0]
    if isinstance(model, ResampledNetwork):
        return model.grids[level_at_least(model.grids, size)]
    if isinstance(model, FourierClassifier) and not covers(model.grids[0], size):
        return model.grids[0]
    return size


def entry_kernel(model: nn.Module) -> Kernel:
    """The kernel that brings inputs to the network's grids; the perfect one where it has none of its own."""
    return model.kernel if isinstance(model, ARRN | ResampledNetwork) else kernel("perfect")


def signal_axes(model: nn.Module) -> int | None:
    """The axes of space of the signals that a network takes; None for one that does not tell.

    >>> from arrn.models import create_model
    >>> signal_axes(create_model("arrn", ndim=1, in_channels=1))
    1
    """
    grids: tuple[Grid, ...] | None = getattr(model, "grids", None)
    return None if grids is None else len(grids[0])
