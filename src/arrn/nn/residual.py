"""`LaplacianResidual`: a fixed-resolution block, wrapped so that it can be skipped exactly."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from arrn.errors import ArrnError
from arrn.nn.constancy import block_grid, check_zero_constant, output_shape, preserves_zero, takes_context
from arrn.nn.fast import can_fuse_level, fused_level
from arrn.nn.layers import Projection, Resampling
from arrn.signal.grid import Grid, Size, as_grid, check_descent, format_grid
from arrn.signal.kernels import KernelLike
from arrn.signal.kernels import kernel as as_kernel


def reject_constant(y: torch.Tensor) -> torch.Tensor:
    """psi: removes the mean over space of each sample and channel."""
    return y - y.mean(dim=tuple(range(2, y.ndim)), keepdim=True)


class LaplacianResidual(nn.Module):
    """One level of an ARRN: takes a signal from its grid N to the next grid M (paper, residualInner).

    With D the smoothing to M, U the interpolation back, b the block, psi the rejection of the
    constant and A the projection of channels, the form follows from the block's own output::

        low  = D r
        diff = r - U low
        r'   = A (D psi b(diff) + low)    b keeps channels and grid
        r'   = D psi b(diff) + A low      b gives out_features channels on the grid N
        r'   = psi b(diff) + A low        b gives out_features channels on the grid M (strided)

    A signal that is already in the band of M has diff = 0, so r' = A low whatever the block: the
    residual can be skipped. (A strided block may also keep its channels; A then acts on the sum. The
    output of a 3x3 stride-2 convolution sits a quarter of a coarse cell off the cell-centred grid; that
    is the block's own affair and exactness is unaffected.)

    Args:
        block: any module; probed once for its output shape and for constancy.
        in_features, out_features: channels of r and r'.
        size, next_size: the grids N and M, numbers or one number per axis.
        kernel: the smoothing kernel or its name.
        psi: reject the constant after the block; by default unless the block preserves zero.
        check: run `check_zero_constant`, which refuses blocks that could not be skipped exactly.

    Shape: (batch, in_features, *size) -> (batch, out_features, *next_size).

    >>> block = nn.Conv2d(4, 4, 3, padding=1, padding_mode="replicate")
    >>> residual = LaplacianResidual(block, 4, 8, size=8, next_size=5)
    >>> residual(torch.rand(2, 4, 8, 8)).shape
    torch.Size([2, 8, 5, 5])
    """

    def __init__(
        self,
        block: nn.Module,
        in_features: int,
        out_features: int,
        size: Size,
        next_size: Size,
        kernel: KernelLike = "perfect",
        *,
        psi: bool | None = None,
        check: bool = True,
    ) -> None:
        super().__init__()
        ndim = len(block_grid(block, size if isinstance(size, Sequence) else next_size))
        self.size, self.next_size = as_grid(size, ndim), as_grid(next_size, ndim)
        check_descent(self.size, self.next_size)
        self.kernel = as_kernel(kernel)
        if all(self.kernel.band(n) == self.kernel.band(m) for n, m in zip(self.size, self.next_size, strict=True)):
            raise ArrnError(
                f"{format_grid(self.size)} and {format_grid(self.next_size)} hold the same band under {self.kernel}, "
                "so this residual would never see a difference: choose a smaller next_size"
            )
        self.in_features, self.out_features = in_features, out_features
        self.psi = not preserves_zero(block) if psi is None else psi
        self.takes_context = takes_context(block)
        if check:
            if not self.psi and not preserves_zero(block):
                raise ArrnError(
                    "psi=False needs a block that declares preserves_zero; pass check=False to build it all the same"
                )
            channels, grid = check_zero_constant(block, in_features, self.size)
        else:
            channels, grid = output_shape(block, in_features, self.size)
        self.strided, self.widening = self._form(channels, grid)
        self.block = block
        self.projection = Projection(in_features, out_features)
        self.down = Resampling(self.size, self.next_size, self.kernel)
        self.up = Resampling(self.next_size, self.size, self.kernel)

    def _form(self, channels: int, grid: Grid) -> tuple[bool, bool]:
        strided = grid == self.next_size
        if not strided and grid != self.size:
            raise ArrnError(
                f"the block takes {format_grid(self.size)} to {format_grid(grid)}; it must keep its grid or end "
                f"on the next one: make next_size {format_grid(grid)} instead of {format_grid(self.next_size)}, "
                "or let the block keep its size"
            )
        if channels not in (self.in_features, self.out_features):
            raise ArrnError(
                f"the block gives {channels} channels; it must give in_features={self.in_features} or "
                f"out_features={self.out_features}"
            )
        # With as many channels in as out, a block on its own grid is the paper's: A takes the sum.
        widening = channels == self.out_features and (strided or self.in_features != self.out_features)
        return strided, widening

    def forward(self, r: torch.Tensor, survivors: torch.Tensor | int | None = None) -> torch.Tensor:
        """Runs the level.

        Args:
            r: shape (batch, in_features, *size).
            survivors: a gate of shape (batch,) that multiplies the difference, or the number of
                samples, counted from the first, that the block processes; the others are skipped.
        """
        if tuple(r.shape[1:]) != (self.in_features, *self.size):
            expected = ", ".join(map(str, ("batch", self.in_features, *self.size)))
            raise ArrnError(f"expected shape ({expected}), got {tuple(r.shape)}")
        if can_fuse_level(self, survivors):
            return fused_level(self, r, survivors)
        low = self.down(r)
        if survivors is None or isinstance(survivors, torch.Tensor):
            gate = None if survivors is None else survivors.to(r.dtype).view(-1, *[1] * (r.ndim - 1))
            return self._combine(low, self._contribution(r, low, gate))
        count = min(survivors, r.shape[0])
        if count == 0:
            skipped: torch.Tensor = self.projection(low)
            return skipped
        return self._combine(low, self._contribution(r[:count], low[:count], None))

    def skip(self, r: torch.Tensor) -> torch.Tensor:
        """What the level makes of a signal without details: A D r. The block does not run."""
        return self.forward(r, 0)

    def _contribution(self, r: torch.Tensor, low: torch.Tensor, gate: torch.Tensor | None) -> torch.Tensor:
        """psi b(diff), smoothed to the next grid."""
        if self.takes_context:
            smooth = self.up(low)
            diff = _gated(r - smooth, gate)
            y: torch.Tensor = self.block(diff, smooth)
        else:
            y = self.block(_gated(self.up.taken_from(r, low), gate))
        if self.strided:
            return reject_constant(y) if self.psi else y
        smoothed: torch.Tensor = self.down(y)
        if not self.psi:
            return smoothed
        # psi and D commute, since constants pass D. An exact kernel also keeps the mean, which can
        # then be taken after D, on fewer samples.
        if self.kernel.exact:
            return reject_constant(smoothed)
        return smoothed - y.mean(dim=tuple(range(2, y.ndim)), keepdim=True)

    def _combine(self, low: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """A (y + low), or y + A low; `y` may hold only the first samples of the batch."""
        if self.widening:
            return _add_first(self.projection(low), y)
        combined: torch.Tensor = self.projection(_add_first(low, y))
        return combined

    def extra_repr(self) -> str:
        form = ("strided " if self.strided else "") + ("widening" if self.widening else "plain")
        return (
            f"{format_grid(self.size)} -> {format_grid(self.next_size)}, "
            f"{self.in_features} -> {self.out_features} features, "
            f"{self.kernel.name}/{self.kernel.boundary}, {form}{'' if self.psi else ', no psi'}"
        )


def _gated(diff: torch.Tensor, gate: torch.Tensor | None) -> torch.Tensor:
    return diff if gate is None else diff * gate


def _add_first(whole: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    if first.shape[0] == whole.shape[0]:
        return whole + first
    return torch.cat([whole[: first.shape[0]] + first, whole[first.shape[0] :]])
