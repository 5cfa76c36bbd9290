"""`Network`: what a network tells of itself; where inputs enter it; the options that it was built from."""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import nn

from arrn.errors import ArrnError, unknown_name
from arrn.metadata import Metadata
from arrn.runtime.levels import Policy as Policy
from arrn.runtime.levels import as_policy as as_policy
from arrn.signal.grid import Grid, Size, format_sizes, grid_of, level_at_least
from arrn.signal.kernels import Kernel, kernel, kernel_options
from arrn.signal.resample import resample


class Network(nn.Module):
    """The base of the library's networks: the grids that they run on, and how inputs of any size get there.

    Attributes:
        grids: the grids that the network runs on, highest first.
        in_channels: channels of the input.
        kernel: the kernel that takes inputs to the grids; None if inputs stay on their own grid.
        policy: the entry level of sizes between two grids; None for networks that do not adapt.
        adapts: whether low resolutions skip part of the network, so that it takes ``adapt=False``.
        config: the options by which `create_model` built the network, which `arrn.save` writes; None for networks built
            by hand.
        metadata: the normalisation of inputs and the names of classes, as far as they are known.
    """

    adapts: ClassVar[bool] = False
    grids: tuple[Grid, ...]
    in_channels: int
    kernel: Kernel | None = None
    policy: Policy | None = None
    config: dict[str, Any] | None = None
    metadata: Metadata = Metadata()

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The grids as users write them, highest first: numbers, or tuples where axes differ."""
        return format_sizes(self.grids)

    @property
    def ndim(self) -> int:
        """The number of axes of space."""
        return len(self.grids[0])

    @property
    def num_classes(self) -> int:
        """The classes that it tells apart; 0 when it returns features."""
        raise NotImplementedError

    @property
    def grids_for_all_parts(self) -> tuple[Grid, ...]:
        """The grids on which inputs must enter, at least once each, so that every part of the network runs."""
        return ()

    def entry_grid(self, size: Grid, policy: Policy | None = None, adapt: bool = True) -> Grid:
        """The grid that an input of `size` is taken to."""
        return self.grids[level_at_least(self.grids, size)]

    def _repr_html_(self) -> str:
        """What `print` shows, for a notebook: its lines do not wrap, and a long text scrolls."""
        style = "overflow: auto; max-height: 40em; line-height: 1.3; font-family: monospace; font-size: 90%"
        return f'<pre style="{style}">{html.escape(repr(self))}</pre>'


class _Unknown(Network):
    """Stands for a module that is no `Network`, of which little is known: it takes images of any size as they are."""

    def __init__(self, module: object) -> None:
        super().__init__()
        self.grids = getattr(module, "grids", ())

    @property
    def ndim(self) -> int:
        return len(self.grids[0]) if self.grids else 2

    def entry_grid(self, size: Grid, policy: Policy | None = None, adapt: bool = True) -> Grid:
        return size


def as_network(model: object) -> Network:
    """The model, to be asked what a `Network` tells; a stand-in, not to be run, for any other module."""
    return model if isinstance(model, Network) else _Unknown(model)


def entry_grid(model: nn.Module, size: Grid, policy: Policy | None = None, adapt: bool = True) -> Grid:
    """The grid on which an input of `size` enters `model`.

    Inputs of different sizes with the same entry grid can be resampled to this grid and stacked. The entry grid is,
    for an ARRN, the grid of the level that `policy` chooses (the top grid without `adapt`); for a fixed-resolution
    network, its native size; for a network that runs at any size, the input's own grid, but at most the native size.

    >>> from arrn.models import create_model
    >>> entry_grid(create_model("arrn"), (11, 7))
    (16, 16)
    """
    return as_network(model).entry_grid(size, policy, adapt)


def entry_kernel(model: nn.Module) -> Kernel:
    """The kernel that brings inputs to the network's grids; the perfect kernel if the network has none of its own."""
    return as_network(model).kernel or kernel("perfect")


def signal_axes(model: nn.Module) -> int | None:
    """The number of axes of space of the signals that a network takes; None if the network does not say.

    >>> from arrn.models import create_model
    >>> signal_axes(create_model("arrn", ndim=1, in_channels=1))
    1
    """
    network = as_network(model)
    return network.ndim if network.grids else None


def enter_together(
    model: nn.Module,
    signals: Sequence[torch.Tensor],
    policy: Policy | None = None,
    adapt: bool = True,
    prepare: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> Iterator[tuple[Grid, torch.Tensor, list[int]]]:
    """Takes signals of any sizes to the grids on which they enter `model`, and stacks those that share one.

    Args:
        model: the network.
        signals: each of shape (batch, channels, *space).
        policy, adapt: as for `entry_grid`.
        prepare: called on each signal before it is resampled; leaves its grid as it is.

    Yields:
        A grid, the batch for it, and the places in `signals` of what it holds, in that order.

    >>> model = nn.Conv2d(1, 1, 1)  # takes any size
    >>> for grid, batch, places in enter_together(model, [torch.zeros(n, 1, 4, 4) for n in (2, 3)]):
    ...     print(grid, tuple(batch.shape), places)
    (4, 4) (5, 1, 4, 4) [0, 1]
    """
    entering: defaultdict[Grid, list[int]] = defaultdict(list)
    for place, x in enumerate(signals):
        entering[entry_grid(model, grid_of(x), policy, adapt)].append(place)
    smoothing = entry_kernel(model)
    for grid, places in entering.items():
        chosen = (signals[place] for place in places)
        ready = chosen if prepare is None else map(prepare, chosen)
        yield grid, torch.cat([resample(x, grid, smoothing) for x in ready]), places


CHANGEABLE = ("num_classes", "policy")
"""The options that a network can change after it was built."""


def config_of(model: nn.Module) -> dict[str, Any]:
    """``{"name": ..., "options": {...}}`` of a network that `create_model` built.

    Where something was changed afterwards that the builder has no option for, there is a third item, ``"changed"``.
    """
    return cast(dict[str, Any], model.config)  # a user's own module has one too, without a type


def note_option(model: nn.Module, option: str, value: object) -> None:
    """Notes a changed option in ``model.config``, which `arrn.save` writes; networks built by hand have none.

    The names of classes are forgotten with another number of classes.
    """
    config, plain = getattr(model, "config", None), plain_option(value)
    if config is not None:
        # All options of a builder are written down when it is called: others than these it does not take.
        place = config["options"] if option in config["options"] else config.setdefault("changed", {})
        place[option] = plain
    metadata = getattr(model, "metadata", None)
    if option == "num_classes" and isinstance(metadata, Metadata) and isinstance(plain, int):
        model.metadata = metadata.for_classes(plain)  # type: ignore[assignment]  # a module takes any attribute


def change_option(model: nn.Module, option: str, value: Any) -> None:
    """Makes a built network what it would be with that option, one of `CHANGEABLE`, and notes it.

    Raises:
        ArrnError: for other options, and for a network that cannot change it.
    """
    if option not in CHANGEABLE:
        raise unknown_name("change of a built network:", option, CHANGEABLE)
    known = hasattr(model, "reset_classifier") if option == "num_classes" else getattr(model, option, None) is not None
    if not known:
        raise ArrnError(f"the {option} of a {type(model).__name__} cannot be changed (to {value!r}) once it is built")
    if option == "num_classes":
        cast(Any, model).reset_classifier(value)
    else:
        setattr(model, option, value)
    note_option(model, option, value)  # networks of the library have done so; others may not


def classes_of(model: nn.Module) -> int | None:
    """The classes that a network tells apart (0: it returns features), by its options or by itself; None: not known."""
    config = getattr(model, "config", None) or {"options": {}}
    noted = {**config["options"], **config.get("changed", {})}
    if noted.get("features_only") is True:
        return 0
    if isinstance(noted.get("num_classes"), int):
        return cast(int, noted["num_classes"])
    try:
        own = getattr(model, "num_classes", None)
    except (ArrnError, NotImplementedError):  # an `ARRN` whose head has no classes; a network that does not tell
        return None
    # A transplanted head without a linear layer counts 0, though it may well tell classes apart.
    return own if isinstance(own, int) and own > 0 else None


def channels_of(model: nn.Module) -> int | None:
    """The channels of the input that a network takes; None: not known."""
    channels = getattr(model, "in_channels", None)
    return channels if isinstance(channels, int) else None


def plain_option(value: Any) -> Any:
    """An option as data that JSON can hold; what cannot be such data passes unchanged, and `arrn.save` refuses it."""
    if isinstance(value, Kernel):
        try:
            return kernel_options(value)
        except (ArrnError, AttributeError):  # a kernel of the user's own, perhaps without a name
            return value
    if isinstance(value, Mapping):
        return {str(key): plain_option(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_option(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value
