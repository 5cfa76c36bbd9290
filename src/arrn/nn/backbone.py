"""`Backbone`: an ARRN whose answer is a list of feature maps, in timm's conventions, for segmentation and detection."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, TypeAlias

import torch
from torch import nn

from arrn.errors import ArrnError
from arrn.nn.arrn import ARRN
from arrn.nn.drawing import Drawing, draw_chain, title_of
from arrn.nn.dropout import BlocklessLevel
from arrn.nn.introspection import unwrap
from arrn.nn.network import Network, Policy, note_option
from arrn.signal.grid import Grid, Size, format_grid, grid_of

Reduction: TypeAlias = int | float | tuple[float, ...]
"""How many times coarser a grid is than the top one; one number for each axis where axes differ."""


class FeatureInfo:
    """Facts about the feature maps of a backbone, with the interface of timm's class of the same name.

    Without an index, methods describe the maps that the backbone returns. With an index, or a list of indices, methods
    describe these maps, counted among all maps of the network.

    Args:
        info: for each map its ``num_chs``, ``reduction``, ``grid``, ``module`` and ``index``.
        out_indices: the maps that the backbone gives.

    >>> from arrn.models import create_model
    >>> info = Backbone(create_model("arrn", sizes=(32, 16, 8), features=(8, 16, 24))).feature_info
    >>> info.channels(), info.reduction(), info.grid()
    ([8, 16, 24], [1, 2, 4], [(32, 32), (16, 16), (8, 8)])
    >>> info[1]["module"]
    'residuals.1'
    """

    def __init__(self, info: Sequence[Mapping[str, Any]], out_indices: Sequence[int]) -> None:
        self.info = [dict(each) for each in info]
        self.out_indices = tuple(out_indices)

    def get(self, key: str, idx: int | Sequence[int] | None = None) -> Any:
        """The fact under `key`, for one map or as a list for several maps."""
        if isinstance(idx, int):
            return self.info[idx][key]
        return [self.info[n][key] for n in (self.out_indices if idx is None else idx)]

    def get_dicts(self, keys: Sequence[str] | None = None, idx: int | Sequence[int] | None = None) -> Any:
        """All facts, or those under `keys`, for one map or as a list for several maps."""

        def told(n: int) -> dict[str, Any]:
            return {key: self.info[n][key] for key in (self.info[n] if keys is None else keys)}

        return told(idx) if isinstance(idx, int) else [told(n) for n in (self.out_indices if idx is None else idx)]

    def channels(self, idx: int | Sequence[int] | None = None) -> Any:
        """The channels of maps."""
        return self.get("num_chs", idx)

    def reduction(self, idx: int | Sequence[int] | None = None) -> Any:
        """How many times coarser the grids of maps are than the top grid (`Reduction`)."""
        return self.get("reduction", idx)

    def grid(self, idx: int | Sequence[int] | None = None) -> Any:
        """The grids of maps, the same for inputs of every size."""
        return self.get("grid", idx)

    def module_name(self, idx: int | Sequence[int] | None = None) -> Any:
        """The names of the levels that give the maps."""
        return self.get("module", idx)

    def __getitem__(self, idx: int) -> dict[str, Any]:
        return self.info[idx]

    def __len__(self) -> int:
        return len(self.info)

    def __repr__(self) -> str:
        maps = (f"{n}: {self.channels(n)} x {format_grid(self.grid(n))}" for n in self.out_indices)
        return f"FeatureInfo({', '.join(maps)})"


class Backbone(Network):
    """An ARRN without its head, which returns feature maps for the head of another task.

    The list has the same length, and each map the same channels and grid, for inputs of every size. The map of a
    skipped level is the map that full evaluation would give (`ARRN.forward_levels`), and the skipped blocks do not
    run.

    Args:
        network: the network whose modules the backbone shares; the network itself does not change.
        out_indices: the maps that the backbone returns, counted from the highest resolution; negative numbers count
            from the end. None is all maps. Levels below the last returned map do not run.

    Shape: (batch, in_channels, *any) -> a list of (batch, features, *grid), in descending order.

    >>> from arrn.models import create_model
    >>> backbone = Backbone(create_model("arrn", sizes=(32, 16, 8), features=(8, 16, 24)), out_indices=(0, -1))
    >>> for size in ((32, 32), (7, 12)):
    ...     print([tuple(features.shape) for features in backbone(torch.rand(2, 3, *size))])
    [(2, 8, 32, 32), (2, 24, 8, 8)]
    [(2, 8, 32, 32), (2, 24, 8, 8)]
    """

    adapts = True

    def __init__(self, network: nn.Module, out_indices: Sequence[int] | None = None) -> None:
        super().__init__()
        given = unwrap(network)
        if not isinstance(given, ARRN):
            raise ArrnError(
                f"a backbone is made of an adaptive network, and a {type(given).__name__} is none: take one of "
                "arrn.list_models() that begins with 'arrn', or timm:NAME or torchvision:NAME"
            )
        self.network = ARRN(
            stem=given.stem,
            residuals=given.levels,
            base=given.base,
            head=nn.Identity(),
            dropout=given.dropout,
            policy=given.policy,
            blockless=[step.lower for step in given.droppable() if isinstance(step, BlocklessLevel)],
        )
        self.network.to(device=given.stem.weight.device, dtype=given.stem.weight.dtype)
        self.network.training = given.training  # its parts are in the modes that they were in
        self.training = given.training
        self.grids = given.grids
        self.kernel = given.kernel
        info = _describe_maps(self.network)
        self.feature_info = FeatureInfo(info, as_indices(out_indices, len(info)))
        self.metadata = dataclasses.replace(given.metadata, class_names=None)
        if given.config is not None:
            self.config = _config_for(given.config, self.feature_info.out_indices)

    @property
    def in_channels(self) -> int:  # type: ignore[override]  # the stem may be replaced
        """The channels of the input."""
        return self.network.in_channels

    @property
    def num_classes(self) -> int:
        """0, since a backbone returns features instead of classes."""
        return 0

    @property  # type: ignore[override]  # it always has one
    def policy(self) -> Policy:
        """The level for sizes between two grids: ``"exact"`` or ``"cheap"``."""
        return self.network.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self.network.policy = policy
        note_option(self, "policy", self.network.policy)

    @property
    def out_channels(self) -> list[int]:
        """The channels of the maps, under the name that segmentation_models_pytorch uses for encoders."""
        channels: list[int] = self.feature_info.channels()
        return channels

    def level(self, size: Size, policy: Policy | None = None) -> int:
        """The level at which an input of `size` enters; the levels above are skipped."""
        return self.network.level(size, policy)

    def entry_grid(self, size: Grid, policy: Policy | None = None, adapt: bool = True) -> Grid:
        """The grid of the level at which an input of `size` enters."""
        return self.network.entry_grid(size, policy, adapt)

    @property
    def grids_for_all_parts(self) -> tuple[Grid, ...]:
        """The top grid: what enters there runs every level."""
        return self.grids[:1]

    def forward(self, x: torch.Tensor, adapt: bool = True, policy: Policy | None = None) -> list[torch.Tensor]:
        """The feature maps of `out_indices`; arguments as in `ARRN.forward`."""
        wanted = self.feature_info.out_indices
        found = dict(zip(sorted(set(wanted)), self.network.forward_levels(x, adapt, policy, wanted), strict=True))
        return [found[n] for n in wanted]

    def _drawing(self) -> Drawing:
        network, maps = self.network, self.feature_info.get_dicts()
        entry = ("stem", self.grids[0], network.stem)
        return draw_chain(network, title_of(network, type(self).__name__), entry, self.grids[-1], maps)

    def __repr__(self) -> str:
        return self._drawing().as_text()

    def _repr_html_(self) -> str:
        return self._drawing().as_table()


def as_indices(indices: Sequence[int] | None, count: int) -> tuple[int, ...]:
    """Indices of `count` maps, each from 0 on; refuses what is none, or twice there.

    >>> as_indices((0, -1), 3)
    (0, 2)
    """
    if indices is None:
        return tuple(range(count))
    given = list(indices) if isinstance(indices, Sequence) and not isinstance(indices, str) else [indices]
    for index in given:
        if isinstance(index, bool) or not isinstance(index, Integral) or not -count <= index < count:
            raise ArrnError(f"out_indices must be whole numbers from {-count} to {count - 1}, got {indices!r:.80}")
    found = tuple(int(index) % count for index in given)
    if not found or len(set(found)) < len(found):
        raise ArrnError(f"out_indices must name at least one map, and each once, got {indices!r:.80}")
    return found


@torch.no_grad()
def _describe_maps(network: ARRN) -> list[dict[str, Any]]:
    """What `FeatureInfo` knows of each map, found on a copy without numbers."""
    bare = copy.deepcopy(network).to("meta").eval()
    top = network.grids[0]
    x = torch.empty(2, network.in_channels, *top, device="meta", dtype=bare.stem.weight.dtype)
    info: list[dict[str, Any]] = []
    for n, features in enumerate(bare.forward_levels(x)):
        grid = grid_of(features)
        module = f"residuals.{n}" if n < len(network.levels) else "base"
        reduction = _reduction(top, grid)
        info.append({"num_chs": features.shape[1], "reduction": reduction, "grid": grid, "module": module, "index": n})
    return info


def _reduction(top: Grid, grid: Grid) -> Reduction:
    ratios = [n // m if n % m == 0 else n / m for n, m in zip(top, grid, strict=True)]
    return ratios[0] if len(set(ratios)) == 1 else tuple(ratios)


def _config_for(config: Mapping[str, Any], out_indices: tuple[int, ...]) -> dict[str, Any]:
    """How to build the backbone of a network that was built so; what was changed of its classes is forgotten."""
    options = {**config["options"], "features_only": True, "out_indices": list(out_indices)}
    changed = {option: value for option, value in config.get("changed", {}).items() if option != "num_classes"}
    return {**config, "options": options} | ({"changed": changed} if "changed" in config else {})
