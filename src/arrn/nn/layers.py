"""Linear layers of signals with 1 to 3 axes: convolutions, projections of channels, resampling between grids."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from arrn.errors import ArrnError
from arrn.gpu import cast_depthwise, is_fast, kernels_serve, product_dtype
from arrn.signal.grid import Grid, format_grid
from arrn.signal.kernels import Kernel
from arrn.signal.operators import apply_axes, apply_composed, axes_to_resample, axis_order
from arrn.signal.resample import resample_in_network, too_long_for_matrices

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
BATCH_NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
FUNCTIONAL_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def replicate_pad(x: torch.Tensor, padding: list[int]) -> torch.Tensor:
    """Repeats the edge samples of `x`, shaped (batch, channels, *space).

    Args:
        padding: the samples to add, in the order of `torch.nn.functional.pad`: before and after the
            last axis, then the one before it.
    """
    if not torch.compiler.is_compiling() or torch.compiler.is_exporting():
        return F.pad(x, padding, mode="replicate")
    # The CPU backend of torch.compile (2.14) fails in the backward of F.pad with a stride assertion,
    # and eager F.pad is twice as fast as this: each form where it works best.
    for k in range(len(padding) // 2):
        axis = x.ndim - 1 - k
        before, after = padding[2 * k], padding[2 * k + 1]
        first, last = x.narrow(axis, 0, 1), x.narrow(axis, x.shape[axis] - 1, 1)
        x = torch.cat([first] * before + [x] + [last] * after, dim=axis)
    return x


class _ReplicatePadding:
    """What the three classes below share: torch's convolution calls `_conv_forward` to do its work."""

    _reversed_padding_repeated_twice: list[int]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    kernel_size: tuple[int, ...]
    padding: tuple[int, ...] | str
    in_channels: int
    out_channels: int

    @property
    def fits_kernel(self) -> bool:
        """Whether this is the depthwise 3x3 that a GPU has a kernel for (`arrn.gpu.replicate_depthwise`)."""
        return (
            self.kernel_size == (3, 3)
            and self.groups == self.in_channels == self.out_channels
            and self.stride == self.dilation == self.padding == (1, 1)
        )

    def _conv_forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if self.fits_kernel and weight.ndim == 4 and kernels_serve(x):
            return cast_depthwise(x, weight, bias)
        convolve: Callable[..., torch.Tensor] = FUNCTIONAL_CONVOLUTIONS[weight.ndim - 2]
        padded = replicate_pad(x, self._reversed_padding_repeated_twice)
        return convolve(padded, weight, bias, self.stride, 0, self.dilation, self.groups)


class ReplicateConv1d(_ReplicatePadding, nn.Conv1d):
    """`torch.nn.Conv1d`, its padding filled with the edge samples: a constant stays constant."""


class ReplicateConv2d(_ReplicatePadding, nn.Conv2d):
    """`torch.nn.Conv2d`, its padding filled with the edge samples: a constant stays constant."""


class ReplicateConv3d(_ReplicatePadding, nn.Conv3d):
    """`torch.nn.Conv3d`, its padding filled with the edge samples: a constant stays constant."""


REPLICATE_CONVOLUTIONS = {1: ReplicateConv1d, 2: ReplicateConv2d, 3: ReplicateConv3d}


def project(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Applies an (out, in) matrix to the channels of `x`, shaped (batch, in, *space)."""
    ndim = x.ndim - 2
    return FUNCTIONAL_CONVOLUTIONS[ndim](x, weight.reshape(*weight.shape, *[1] * ndim))


class Borrowed(nn.Module):
    """Runs a module that belongs to another part of the network: the same weights, at a second place.

    The parameters belong to the owner alone, so they are counted, moved, trained and saved once. A network with a
    borrower must hold the owner too.

    >>> owner = nn.Conv2d(3, 4, 3)
    >>> network = nn.ModuleList([owner, Borrowed(owner)])
    >>> list(network.state_dict())
    ['0.weight', '0.bias']
    """

    def __init__(self, owner: nn.Module) -> None:
        super().__init__()
        self._owner = (owner,)  # within a tuple, nn.Module does not take it for a part of this one

    @property
    def owner(self) -> nn.Module:
        """The module that is run."""
        return self._owner[0]

    def _apply(self, fn: Callable[..., torch.Tensor], recurse: bool = True) -> Borrowed:
        # A part of a network may be moved, or copied and moved, without the part that the owner is in.
        self.owner._apply(fn, recurse)  # type: ignore[no-untyped-call]
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.owner(x)
        return y

    def extra_repr(self) -> str:
        return repr(self.owner)


class Projection(nn.Module):
    """A linear map of channels, the same at every sample; no bias, so that a zero signal stays zero.

    Shape: (batch, in_features, *space) -> (batch, out_features, *space), any number of axes.
    """

    def __init__(self, in_features: int, out_features: int, weight: torch.Tensor | None = None) -> None:
        super().__init__()
        if in_features < 1 or out_features < 1:
            raise ArrnError(
                f"a projection needs at least 1 feature on either side, got {in_features} -> {out_features}"
            )
        self.in_features, self.out_features = in_features, out_features
        self.weight = nn.Parameter(torch.empty(out_features, in_features) if weight is None else weight)
        if weight is None:
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weights that keep the variance, so that a chain of projections does not fade."""
        nn.init.normal_(self.weight, std=self.in_features**-0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return project(x, self.weight)

    def extra_repr(self) -> str:
        return f"{self.in_features} -> {self.out_features}"


def fold(weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """The one matrix A_n ... A_0 of projections applied one after another; `weights` starts with A_0."""
    folded = weights[0]
    for weight in weights[1:]:
        folded = weight @ folded
    return folded


# Where one product over all axes pays, which has more arithmetic but reads the signal once, and up to how many entries.
COMPOSED_ON = {"cuda"}
LARGEST_COMPOSED = 2**19


class Resampling(nn.Module):
    """Takes signals from one fixed grid to another by one matrix product per axis, or on a GPU by a single product.

    Lines that are too long for a matrix, such as sound, are resampled by transforms (`resample_in_network`).

    The matrices are made in float64 and cast from float64 each time the module changes its dtype, so
    ``module.half().float()`` loses no precision. They are not parameters and not in `state_dict`.

    Shape: (batch, channels, *source) -> (batch, channels, *target); cell-centred grids, the kernel's
    border, the input's memory format.
    """

    def __init__(self, source: Grid, target: Grid, kernel: Kernel) -> None:
        super().__init__()
        self.source, self.target, self.kernel = source, target, kernel
        self.by_transform = too_long_for_matrices(source, target, kernel)
        self.axes = [] if self.by_transform else axes_to_resample(kernel, source, target)
        for axis in self.axes:
            empty = torch.empty(0)  # its dtype and device are those in force
            self.register_buffer(f"matrix{axis}", self._cast(axis, empty), persistent=False)
        self.register_buffer("composed", self._compose(torch.empty(0)), persistent=False)
        self._casts: dict[tuple[torch.dtype, torch.device, bool], torch.Tensor] = {}

    def _cast(self, axis: int, like: torch.Tensor) -> torch.Tensor:
        master = self.kernel.matrix(self.source[axis], self.target[axis])
        return master.to(like.dtype).to(like.device)  # cast first: not every device has float64

    def _compose(self, like: torch.Tensor) -> torch.Tensor | None:
        """One matrix for all axes, where that pays."""
        small = math.prod(self.source) * math.prod(self.target) <= LARGEST_COMPOSED
        if like.device.type not in COMPOSED_ON or not 2 <= len(self.source) == len(self.axes) or not small:
            return None
        masters = [self.kernel.matrix(n, m) for n, m in zip(self.source, self.target, strict=True)]
        return reduce(torch.kron, masters).to(like.dtype).to(like.device)

    @property
    def is_composed(self) -> bool:
        """Whether this module resamples all axes by one matrix."""
        return isinstance(self.composed, torch.Tensor) and is_fast()

    def composed_for(self, x: torch.Tensor, rejecting: bool = False) -> torch.Tensor:
        """The matrix for all axes, in the dtype for a product with `x`; it is made once.

        With `rejecting`, the mean over the source grid is taken from each answer in the same product.
        """
        key = product_dtype(x), x.device, rejecting
        if torch.compiler.is_compiling() and not rejecting:
            assert isinstance(self.composed, torch.Tensor)
            return self.composed.to(key[0])  # a cast that the compiler sees; it cannot follow what is kept for later
        if key not in self._casts:
            # Training may need again what evaluation made first, and autograd takes no tensor of inference mode.
            with torch.inference_mode(False):
                whole = self._compose(torch.empty(0, dtype=torch.float64, device=x.device))
                assert whole is not None
                matrix = (whole - rejecting / whole.shape[1]).to(key[0])
            if type(matrix) is not torch.Tensor:
                return matrix  # a tracer's stand-in, which must not outlive the trace
            self._casts[key] = matrix
        return self._casts[key]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.by_transform:
            return resample_in_network(x, self.target, self.kernel)
        if self.is_composed:
            return apply_composed(x, self.composed_for(x), self.target)
        return apply_axes(x, [(axis, getattr(self, f"matrix{axis}")) for axis in self.axes])

    def taken_from(self, minuend: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """`minuend`, a signal on the target grid, less the resampled `x`."""
        if self.is_composed:
            return apply_composed(x, self.composed_for(x), self.target, minuend)
        resampled: torch.Tensor = self(x)
        return minuend - resampled

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        before = list(self.buffers())
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if all(now is then for now, then in zip(self.buffers(), before, strict=True)):
            return self  # a recorded graph knows the matrices by their address
        # torch casts a buffer from its present value, which may have lost digits in an earlier cast.
        self._casts.clear()
        for axis in self.axes:
            setattr(self, f"matrix{axis}", self._cast(axis, getattr(self, f"matrix{axis}")))
        if self.axes:
            self.composed = self._compose(getattr(self, f"matrix{self.axes[0]}"))
        return self

    def extra_repr(self) -> str:
        return f"{format_grid(self.source)} -> {format_grid(self.target)}, {self.kernel.name}/{self.kernel.boundary}"


class WayIn(NamedTuple):
    """How signals on one grid come to the grid and the channels of a level: planned once, without tensors.

    The projections that are skipped are one matrix over channels. It commutes with resampling, which is over space, so
    the cheaper order is taken.

    Attributes:
        axes: the axes to resample, in the order of least work, each with the samples before and after.
        by_transform: whether lines are too long for matrices.
        project_first: whether projecting before resampling costs less.
        target, kernel: the level's grid, and what resamples to it.
    """

    axes: tuple[tuple[int, int, int], ...]
    by_transform: bool
    project_first: bool
    target: Grid
    kernel: Kernel

    def take(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """`x`, shaped (batch, in, *source), on the level's grid, its channels multiplied by the (out, in) weight."""
        if self.project_first:
            return self._resample(project(x, weight))
        return project(self._resample(x), weight)

    def _resample(self, x: torch.Tensor) -> torch.Tensor:
        if self.by_transform:
            return resample_in_network(x, self.target, self.kernel)
        matrix_on = self.kernel.matrix_on
        return apply_axes(x, [(axis, matrix_on(n, m, x.dtype, x.device)) for axis, n, m in self.axes])


def plan_way_in(source: Grid, target: Grid, kernel: Kernel, in_features: int, out_features: int) -> WayIn:
    """The plan for signals of `in_features` channels on the grid `source`."""
    axes = axes_to_resample(kernel, source, target)

    def cost_of_resampling(features: int) -> int:
        grid, cost = list(source), 0
        for axis in axis_order(source, target):
            if source[axis] != target[axis]:
                cost += features * math.prod(grid) * target[axis]
                grid[axis] = target[axis]
        return cost

    projecting = in_features * out_features
    first = projecting * math.prod(source) + cost_of_resampling(out_features)
    last = projecting * math.prod(target) + cost_of_resampling(in_features)
    steps = tuple((axis, source[axis], target[axis]) for axis in axes)
    return WayIn(steps, too_long_for_matrices(source, target, kernel), first < last, target, kernel)


_kept_way_in = lru_cache(maxsize=1024)(plan_way_in)


def way_in(source: Grid, target: Grid, kernel: Kernel, in_features: int, out_features: int) -> WayIn:
    """`plan_way_in`, made once for the same arguments; tracers, which see through caches, make it anew."""
    find = plan_way_in if torch.compiler.is_compiling() else _kept_way_in
    return find(source, target, kernel, in_features, out_features)
