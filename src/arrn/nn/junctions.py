"""Where levels of the gated form meet: features from above take the place of those that a level makes by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import nn

from arrn.nn.layers import Projection


def carrying(channels: int, beside: int, taken: int | None = None) -> Projection:
    """A projection that hands the signal on as it is and nothing beside it; it is not trained.

    >>> carrying(3, 1)(torch.ones(1, 3, 2)).mean(dim=2)
    tensor([[1., 1., 1., 0.]])
    """
    weight = torch.zeros(channels + beside, taken or channels)
    weight[:channels, :channels] = torch.eye(channels)
    projection = Projection(taken or channels, channels + beside, weight)
    return projection.requires_grad_(False)


class Junction(nn.Module):
    """Joins the features that a level computes from the signal itself with the features from the level above.

    The input is (s, g, f): first the channels of the signal s; then, below the top level, the opening g of the gate
    above; then the features f that came through that gate. If the levels above are skipped, g = 0 and f = 0. The
    junction computes::

        h = f + (1 - g) entry(s)
        answer = body(h)                      of the base
        answer = (0, 1, body(h))              of a level: times the level's own gate, the next junction's g and f

    The signal itself goes down the ladder unchanged, beside the features, so every level receives it.

    Args:
        entry: from the signal to features.
        body: from features to features.
        channels: the channels of the signal.
        ends: whether this is the base, which hands nothing on.
        features: the channels of h, for `ARRN.forward_levels`, which then has the features on this grid too.
        stays: how many layers of the body, an `nn.Sequential`, still work on this grid; h is then the output of these
            layers.

    Shape: (batch, channels, *grid), or (batch, channels + 1 + features, *grid) -> the body's output, with
        `channels` + 1 channels before it, except in the base.

    >>> from arrn.nn import StridedBlock
    >>> junction = Junction(nn.Conv2d(3, 8, 3, padding=1), StridedBlock(8, 12, stride=2), channels=3)
    >>> junction(torch.rand(2, 3 + 1 + 8, 6, 6)).shape
    torch.Size([2, 16, 3, 3])
    """

    def __init__(
        self,
        entry: nn.Module,
        body: nn.Module,
        channels: int,
        ends: bool = False,
        features: int | None = None,
        stays: int = 0,
    ) -> None:
        super().__init__()
        self.entry, self.body, self.channels, self.ends = entry, body, channels, ends
        self.features, self.stays = features, stays
        self.gives_map = features is not None

    def forward(self, r: torch.Tensor, maps: list[torch.Tensor] | None = None) -> torch.Tensor:
        """Runs the junction.

        Args:
            r: shape (batch, channels, *grid) or (batch, channels + 1 + features, *grid).
            maps: where given, (0, 1, h) is appended, or h where it `ends`: the last features on this grid.
        """
        k = self.channels
        h: torch.Tensor = self.entry(r[:, :k])
        if r.shape[1] > k:
            h = torch.addcmul(h, r[:, k : k + 1].to(h.dtype), h, value=-1) + r[:, k + 1 :].to(h.dtype)
        if maps is None:
            y: torch.Tensor = self.body(h)
        else:
            layers = list(cast(nn.Sequential, self.body)) if self.stays else [self.body]
            for layer in layers[: self.stays]:
                h = layer(h)
            maps.append(h if self.ends else _beside_signal(h, k))
            y = h
            for layer in layers[self.stays :]:
                y = layer(y)
        return y if self.ends else _beside_signal(y, k)

    def without_features(self, r: torch.Tensor) -> torch.Tensor:
        """(s, 0, 0), of the shape that `maps` have: what there is on this grid of a signal that skips this level."""
        assert self.features is not None
        return torch.cat([r[:, : self.channels], r.new_zeros(r.shape[0], 1 + self.features, *r.shape[2:])], dim=1)

    def extra_repr(self) -> str:
        return f"channels={self.channels}" + (", ends here" if self.ends else "")


class VectorJunction(nn.Module):
    """A `Junction` for networks that end in a vector for each sample, on any grid.

    The input is (s, g, f) as for `Junction`, where f is the vector from the level above. The junction computes::

        h = f + (1 - g) mean over space of network(s)
        answer = h                       of the base
        answer = (0, 1, h)               of a level: times the level's own gate, the next junction's g and f

    Where g = 1 the network adds nothing. On a CPU, in evaluation, it does not run for such samples. In a recording or a
    compiled program, what runs does not depend on the signal: `arrn.nn.Shortcut` makes two programs of the network.
    In training with the stratified draw the network runs for the samples that enter at this level alone. For a flat
    sample that came through a gate which is not fully open, (1 - g) network(s) is then missing; the network learns what
    belongs there from the samples whose upper levels are dropped.

    Between levels the numbers of h are laid out over the samples of the next grid, in as few channels as possible.

    Args:
        network: layers from the signal to `features` channels, on any grid.
        channels: the channels of the signal.
        features: the length of h.
        next_size: the grid of the level below; None for the base, which hands nothing on.
        shows: how many layers of the network come before its features on the level's own grid. `ARRN.forward_levels`
            gives these features: (s, 1, features) times the gate, or in the base the features alone. None: it gives r.
        shown: the channels of these features.
        taken_to_grid: takes these features to the level's own grid, where the layers end on a larger one.

    Shape: (batch, channels, *grid), or (batch, channels + 1 + laid_out(features, grid), *grid) -> the same on
        `next_size`, or (batch, features, 1, ..., 1) of the base.

    >>> junction = VectorJunction(nn.Sequential(nn.Conv2d(3, 20, 3)), channels=3, features=20, next_size=(3, 3))
    >>> junction(torch.rand(2, 3, 6, 6)).shape
    torch.Size([2, 7, 3, 3])
    """

    looks_at_gates = True  # what runs depends on the values of a signal

    def __init__(
        self,
        network: nn.Sequential,
        channels: int,
        features: int,
        next_size: Sequence[int] | None = None,
        *,
        shows: int | None = None,
        shown: int = 0,
        taken_to_grid: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.network, self.channels, self.features = network, channels, features
        self.next_size = None if next_size is None else tuple(next_size)
        self.shows, self.shown, self.taken_to_grid = shows, shown, taken_to_grid
        self.gives_map = shows is not None

    @staticmethod
    def laid_out(features: int, grid: Sequence[int]) -> int:
        """How many channels on a grid are needed to hold so many numbers."""
        return -(-features // math.prod(grid))

    def forward(self, r: torch.Tensor, maps: list[torch.Tensor] | None = None, opened: int = 0) -> torch.Tensor:
        """Runs the junction.

        Args:
            r: as above.
            maps: where given, the features on the level's own grid are appended.
            opened: in training, how many samples, counted from the first, came through the gate above.
        """
        if r.shape[1] == self.channels:
            h = self.find(r, maps)
        else:
            gate, above = _from_above(r, self.channels, self.features)
            # Samples whose features all come from above; this network would run for nothing.
            settled = None if maps is not None else self._settled(gate)
            if 0 < opened < len(r) and maps is None:
                rest = above[opened:] + (1 - gate[opened:]) * self.find(r[opened:])
                h = torch.cat([above[:opened], rest])
            elif settled is None or not settled.any():
                h = above + (1 - gate) * self.find(r, maps)
            elif settled.all():
                h = above
            else:
                rest = ~settled
                h = above.clone()
                h[rest] += (1 - gate[rest]) * self.find(r[rest])
        # Means and sums are float32 at least; the layers of a network in half precision take its own dtype alone.
        h = h.to(torch.promote_types(r.dtype, next(self.network.parameters(), r).dtype))
        if self.next_size is None:
            return h.view(*h.shape, *[1] * (r.ndim - 2))
        return _beside_signal(_lay_out(h, self.next_size), self.channels)

    def find(self, r: torch.Tensor, maps: list[torch.Tensor] | None = None) -> torch.Tensor:
        """The features that the network finds in the signal, shape (batch, features), whatever came from above."""
        found = r[:, : self.channels]
        for n, layer in enumerate(self.network):
            found = layer(found)
            if maps is not None and n + 1 == self.shows:
                features = found if self.taken_to_grid is None else self.taken_to_grid(found)
                maps.append(features if self.next_size is None else _beside_signal(features, self.channels))
        wide = found.float() if found.dtype in (torch.float16, torch.bfloat16) else found
        return wide.flatten(2).mean(dim=2)

    def _settled(self, gate: torch.Tensor) -> torch.Tensor | None:
        """Which gates are fully open, shape (batch,); None where what runs may not depend on the values of a signal."""
        if self.training or torch.compiler.is_compiling() or torch.compiler.is_exporting():
            return None
        if type(gate) is not torch.Tensor or gate.device.type != "cpu":
            return None
        return gate[:, 0] == 1

    def without_features(self, r: torch.Tensor) -> torch.Tensor:
        """(s, 0, 0), of the shape that `maps` have: what there is on this grid of a signal that skips this level."""
        return torch.cat([r[:, : self.channels], r.new_zeros(r.shape[0], 1 + self.shown, *r.shape[2:])], dim=1)

    def extra_repr(self) -> str:
        return f"channels={self.channels}, features={self.features}" + (", ends here" if self.next_size is None else "")


def _from_above(r: torch.Tensor, channels: int, features: int) -> tuple[torch.Tensor, torch.Tensor]:
    """g, which is the same at every sample of the grid, of shape (batch, 1), and f, of shape (batch, features)."""
    numbers = r[:, channels:]
    wide = numbers.float() if r.dtype in (torch.float16, torch.bfloat16) else numbers
    return wide[:, 0].flatten(1)[:, :1], wide[:, 1:].flatten(1)[:, :features]


def _lay_out(h: torch.Tensor, grid: Sequence[int]) -> torch.Tensor:
    """Numbers of shape (batch, features) over the samples of a grid, in as few channels as hold them."""
    count = VectorJunction.laid_out(h.shape[1], grid)
    return nn.functional.pad(h, (0, count * math.prod(grid) - h.shape[1])).view(-1, count, *grid)


def _beside_signal(y: torch.Tensor, channels: int) -> torch.Tensor:
    """(0, 1, y): zeros in the place of the signal, and an open gate."""
    beside = y.new_zeros(y.shape[0], channels + 1, *y.shape[2:])
    beside[:, channels : channels + 1] = 1
    return torch.cat([beside, y], dim=1)
