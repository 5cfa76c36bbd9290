"""`LaplacianResidual`: a fixed-resolution block, wrapped so that it can be skipped exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import nn

from arrn.errors import ArrnError, unknown_name
from arrn.gpu import as_precise_as
from arrn.nn.blocks import BatchRMSNorm
from arrn.nn.constancy import (
    block_grid,
    check_hand_down,
    check_zero_constant,
    gives_map,
    looks_at_gates,
    output_shape,
    preserves_zero,
    takes_context,
)
from arrn.nn.difference import FORMS, Form, answer_both, check_sample_wise, subtract_halves
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
    constant and A the projection of channels, the shapes of the block's own output decide what is computed::

        low  = D r
        diff = r - U low
        r'   = A (D psi b(diff) + low)    b keeps channels and grid
        r'   = D psi b(diff) + A low      b gives out_features channels on the grid N
        r'   = psi b(diff) + A low        b gives out_features channels on the grid M (strided)

    A signal that is already in the band of M has diff = 0, so r' = A low whatever the block: the
    residual can be skipped. (A strided block may also keep its channels; A then acts on the sum. The
    output of a 3x3 stride-2 convolution sits a quarter of a coarse cell off the cell-centred grid. This
    offset does not affect exactness.)

    With ``form="difference"`` (beyond the paper) the block sees the whole signal, once with its details and once
    without, and the difference of its two answers takes the place of psi b(diff)::

        r'   = A (D [b(r) - b(U low)] + low)
        r'   = D [b(r) - b(U low)] + A low
        r'   = [b(r) - b(U low)] + A low

    A signal in the band of M has r = U low, so the bracket is zero for any block. This form needs neither psi nor a
    block that returns a constant for zero: the block may pad with zeros, have biases, positions, squeeze-excitation and
    norms of single samples. Where the level is not skipped, the block does twice the work. Both answers come from one
    call on a batch with two halves, so that batch norms see both halves, which share their random masks
    (`SharedMasks`).

    With ``form="gated"`` (beyond the paper) the block sees the whole signal once, and a gate that reads the energy of
    the details multiplies its answer::

        e    = mean of diff^2 over channels and space
        g    = e^2 / (e^2 + t^4)
        r'   = A low + g b(r)      or with D, as the shapes of b tell

    t is the `threshold`: details whose root mean square is t open the gate half, and natural images open it nearly
    fully. With `saturates` the gate is min(1, e^2 / t^4): details of this size open it fully, and the levels below may
    not run. A signal in the band of M has e = 0, so the contribution is zero for any block with finite outputs. The
    rounding noise of an empty band enters squared. The block runs once, as in the paper's form, and need not meet any
    condition.

    The D before the bracket, or before psi b(diff), may be any operator that returns zero for zero: `hand_down`. The
    low band always takes the network's own D.

    Args:
        block: any module; it is probed once for its output shape and for the conditions of the form.
        in_features: channels of r.
        out_features: channels of r'.
        size: the grid N, a number or one number per axis.
        next_size: the grid M.
        kernel: the smoothing kernel or its name.
        form: ``"paper"``, ``"difference"`` or ``"gated"``.
        psi: reject the constant after the block; by default unless the block preserves zero. For the paper's form only.
        hand_down: the operator that takes the block's contribution to the next grid. ``"kernel"``: D. A kernel or its
            name: the smoothing of that kernel; ``"poor"`` lets some detail through. A module: it is called on
            (batch, channels, *size) and gives in_features or out_features channels on `next_size`. It must return zero
            for zero, as a strided convolution without bias does, and must not divide by the size of its input.
        bracket_norm: divide the bracket by its root mean square (`BatchRMSNorm`), since the bracket is small at first.
            For the difference form only.
        threshold: for the gated form, t above: in units of r, above 0.
        saturates: for the gated form, whether the gate opens fully.
        reads: for the gated form, how many of r's channels the gate reads, counted from the first; None: all.
        check: run `check_zero_constant` or, for the difference form, `check_sample_wise`, which refuse blocks that
            could not be skipped exactly; and `check_hand_down`. For the gated form only a block's shape is checked.

    Shape: (batch, in_features, *size) -> (batch, out_features, *next_size).

    >>> block = nn.Conv2d(4, 4, 3, padding=1, padding_mode="replicate")
    >>> residual = LaplacianResidual(block, 4, 8, size=8, next_size=5)
    >>> residual(torch.rand(2, 4, 8, 8)).shape
    torch.Size([2, 8, 5, 5])
    >>> block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.LayerNorm([4, 8, 8]), nn.Conv2d(4, 4, 3, padding=1))
    >>> LaplacianResidual(block, 4, 8, size=8, next_size=5, form="difference").extra_repr()
    '8 -> 5, 4 -> 8 features, perfect/symmetric, plain, difference form'
    >>> LaplacianResidual(nn.Conv2d(4, 8, 3, 2, 1), 4, 8, size=8, next_size=4, form="gated").extra_repr()
    '8 -> 4, 4 -> 8 features, perfect/symmetric, strided widening, gated form'
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
        form: Form = "paper",
        psi: bool | None = None,
        hand_down: KernelLike | nn.Module = "kernel",
        bracket_norm: bool = False,
        threshold: float = 0.03,
        saturates: bool = False,
        reads: int | None = None,
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
        self.form = form
        self.psi = self._needs_psi(block, psi, bracket_norm, check)
        self.takes_context = takes_context(block)
        law = _LAWS[form] if check else output_shape
        channels, grid = law(block, in_features, self.size)
        self.strided = self._ends_on_next(grid)
        self.block = block
        self.block_features = channels
        self.tells_map = form == "gated" and gives_map(block)
        self._looks_at_gates = form == "gated" and looks_at_gates(block)
        self.bracket_norm = BatchRMSNorm(channels) if bracket_norm else None
        self.saturates = saturates
        self.threshold, self.reads = _check_gate(threshold, reads, in_features)
        self.hand_down, handed = self._hand_down(hand_down, channels, check)
        self.widening = self._widens(handed)
        self.projection = Projection(in_features, out_features)
        self.down = Resampling(self.size, self.next_size, self.kernel)
        self.up = Resampling(self.next_size, self.size, self.kernel)

    def _needs_psi(self, block: nn.Module, psi: bool | None, bracket_norm: bool, check: bool) -> bool:
        """Whether the constant is to be rejected; refuses what does not go with the form."""
        if self.form not in FORMS:
            raise unknown_name("form", self.form, FORMS)
        if bracket_norm and self.form != "difference":
            raise ArrnError(f"bracket_norm=True needs form='difference': the {self.form} form has no bracket")
        if self.form != "paper":
            if psi:
                raise ArrnError(f"psi=True is of the paper's form: the {self.form} form has no constant to reject")
            return False
        needed = not preserves_zero(block)
        if check and needed and psi is False:
            raise ArrnError(
                "psi=False needs a block that declares preserves_zero; pass check=False to build it all the same"
            )
        return needed if psi is None else psi

    def _ends_on_next(self, grid: Grid) -> bool:
        if grid not in (self.size, self.next_size):
            raise ArrnError(
                f"the block takes {format_grid(self.size)} to {format_grid(grid)}; it must keep its grid or end "
                f"on the next one: make next_size {format_grid(grid)} instead of {format_grid(self.next_size)}, "
                "or let the block keep its size"
            )
        return grid == self.next_size

    def _hand_down(self, given: KernelLike | nn.Module, channels: int, check: bool) -> tuple[nn.Module | None, int]:
        """What takes the contribution down where it is not D itself, and the channels that it gives."""
        if given == "kernel":
            return None, channels
        if self.strided:
            raise ArrnError(
                f"the block ends on {format_grid(self.next_size)} itself, so there is nothing to hand down: leave "
                f"hand_down={given!r} out"
            )
        if not isinstance(given, nn.Module):
            return Resampling(self.size, self.next_size, as_kernel(given)), channels
        return given, check_hand_down(given, channels, self.size, self.next_size, probe=check)

    def _widens(self, channels: int) -> bool:
        """Whether what is handed down has the channels of r' already."""
        if channels not in (self.in_features, self.out_features):
            said = "the block gives" if self.hand_down is None else "the output of hand_down has"
            raise ArrnError(
                f"{said} {channels} channels; it must give in_features={self.in_features} or "
                f"out_features={self.out_features}"
            )
        # With as many channels in as out, a block on its own grid is the paper's: A takes the sum.
        return channels == self.out_features and (self.strided or self.in_features != self.out_features)

    def forward(
        self,
        r: torch.Tensor,
        survivors: torch.Tensor | int | None = None,
        maps: list[torch.Tensor] | None = None,
        opened: int = 0,
    ) -> torch.Tensor:
        """Runs the level.

        Args:
            r: shape (batch, in_features, *size).
            survivors: a gate of shape (batch,) that multiplies the difference, or the number of
                samples, counted from the first, that the block processes; the others are skipped.
            maps: a list to which the last signal on the grid `size` is appended: r plus the block's contribution on
                this grid.
            opened: of the gated form, in training: how many samples, counted from the first, came through the gate of
                the level above. A block such as `VectorJunction` does not run for them.
        """
        if tuple(r.shape[1:]) != (self.in_features, *self.size):
            expected = ", ".join(map(str, ("batch", self.in_features, *self.size)))
            raise ArrnError(f"expected shape ({expected}), got {tuple(r.shape)}")
        if maps is None and can_fuse_level(self, survivors):
            return fused_level(self, r, survivors)
        low = self.down(r)
        if survivors is None or isinstance(survivors, torch.Tensor):
            gate = None if survivors is None else survivors.to(r.dtype).view(-1, *[1] * (r.ndim - 1))
            return self._combine(low, self._contribution(r, r, low, gate, maps))
        count = min(survivors, r.shape[0])
        if count == 0:
            if maps is not None:
                maps.append(self.map_without_block(r))
            skipped: torch.Tensor = self.projection(low)
            return skipped
        return self._combine(low, self._contribution(r, r[:count], low[:count], None, maps, opened))

    def skip(self, r: torch.Tensor) -> torch.Tensor:
        """The level's output for a signal without details: A D r. The block does not run."""
        return self.forward(r, 0)

    def map_without_block(self, r: torch.Tensor) -> torch.Tensor:
        """The last signal on the grid `size` if the level is skipped: r, with as many channels as if the level ran."""
        if self.tells_map:
            whole: torch.Tensor = cast(Any, self.block).without_features(r)
            return whole
        wider = not self.strided and self.block_features == self.out_features != self.in_features
        return self.projection(r) if wider else r

    def _map(self, r: torch.Tensor, y: torch.Tensor, inside: torch.Tensor | None) -> torch.Tensor:
        """The last signal on the grid `size`, where the block gave `y` for the first samples, `inside` on its way."""
        whole = self.map_without_block(r)
        if inside is not None:
            return _add_first(whole, inside)
        if self.strided or whole.shape[1] != y.shape[1]:
            return whole
        return _add_first(whole, reject_constant(y) if self.psi else y)

    def _contribution(
        self,
        whole: torch.Tensor,
        r: torch.Tensor,
        low: torch.Tensor,
        gate: torch.Tensor | None,
        maps: list[torch.Tensor] | None,
        opened: int = 0,
    ) -> torch.Tensor:
        """psi b(diff), b(r) - b(U low) or g b(r), on the next grid; `r` may be the first samples of the whole batch."""
        ways: Mapping[str, Callable[..., torch.Tensor]] = {
            "paper": self._answer,
            "difference": self._bracket,
            "gated": self._gated_answer,
        }
        inside: list[torch.Tensor] | None = None if maps is None else []
        y = ways[self.form](r, low, gate, inside, opened)
        if maps is not None:
            maps.append(self._map(whole, y, inside[0] if inside else None))
        if self.strided:
            return reject_constant(y) if self.psi else y
        way = self.down if self.hand_down is None else self.hand_down
        if not isinstance(way, Resampling):
            handed: torch.Tensor = way(reject_constant(y) if self.psi else y)
            return handed
        smoothed: torch.Tensor = way(y)
        if not self.psi:
            return smoothed
        # psi and D commute, since constants pass D. An exact kernel also keeps the mean, which can
        # then be taken after D, on fewer samples.
        if way.kernel.exact:
            return reject_constant(smoothed)
        return smoothed - y.mean(dim=tuple(range(2, y.ndim)), keepdim=True)

    def _answer(self, r: torch.Tensor, low: torch.Tensor, gate: torch.Tensor | None, *_: object) -> torch.Tensor:
        """b(diff), on the block's own grid."""
        if self.takes_context:
            smooth = self.up(low)
            y: torch.Tensor = self.block(_gated(r - smooth, gate), smooth)
        else:
            y = self.block(_gated(self.up.taken_from(r, low), gate))
        return y

    def _bracket(self, r: torch.Tensor, low: torch.Tensor, gate: torch.Tensor | None, *_: object) -> torch.Tensor:
        """b(r) - b(U low), on the block's own grid; gated, b(U low + gate diff) - b(U low), and zero where gate is."""
        smooth = self.up(low)
        if gate is not None:
            r = smooth + gate * (r - smooth)
        answers = answer_both(self.block, torch.cat([r, smooth]), smooth if self.takes_context else None)
        return subtract_halves(answers, gate, self.bracket_norm)

    def _gated_answer(
        self,
        r: torch.Tensor,
        low: torch.Tensor,
        gate: torch.Tensor | None,
        inside: list[torch.Tensor] | None,
        above: int,
    ) -> torch.Tensor:
        """g b(r), on the block's own grid; `gate` multiplies the details before the block and the energy see them.

        Where `inside` is given, g times what the block tells of its way there is appended.
        """
        arguments: list[Any] = [r]
        if gate is not None or self.takes_context:
            smooth = self.up(low)
            diff = _gated(r - smooth, gate)
            arguments = [smooth + diff, smooth] if self.takes_context else [smooth + diff]
            opened = self._openness(diff[:, : self.reads])
        else:
            opened = self.openness_of(r, low)
        if inside is not None and self.tells_map:
            arguments.append(inside)
        named = {"opened": above} if above and self._looks_at_gates else {}
        y: torch.Tensor = self.block(*arguments, **named)
        if inside:
            inside[0] = inside[0] * opened.to(inside[0].dtype)
        return y * opened.to(y.dtype)

    def openness_of(self, r: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
        """How far a signal opens the gate of a level of the gated form; shape (batch, 1, ..., 1), in [0, 1].

        Args:
            r: shape (batch, features, *size), of which the first `reads` are read.
            low: D r, shape (batch, features, *next_size).
        """
        return self._openness(self._read_details(r, low))

    def _read_details(self, r: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
        """r - U low, of the channels that the gate reads."""
        read, precise = r[:, : self.reads], self.projection.weight.dtype
        if read.dtype == low.dtype == precise:
            return self.up.taken_from(read, low[:, : self.reads])
        # Outside of autocast, whose rounding would open the gate a little for signals without details.
        with as_precise_as(r):
            read = read.to(precise)
            return self.up.taken_from(read, self.down(read))

    def _openness(self, diff: torch.Tensor) -> torch.Tensor:
        """g, of shape (batch, 1, ..., 1), in at least float32."""
        wide = diff.float() if diff.dtype in (torch.float16, torch.bfloat16) else diff
        square = wide.square().mean(dim=tuple(range(1, wide.ndim)), keepdim=True).square()
        if self.saturates:
            return (square / self.threshold**4).clamp(max=1)
        return square / (square + self.threshold**4)

    def _combine(self, low: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """A (y + low), or y + A low; `y` may hold only the first samples of the batch."""
        if self.widening:
            return _add_first(self.projection(low), y)
        combined: torch.Tensor = self.projection(_add_first(low, y))
        return combined

    def extra_repr(self) -> str:
        said = [
            f"{format_grid(self.size)} -> {format_grid(self.next_size)}",
            f"{self.in_features} -> {self.out_features} features",
            f"{self.kernel.name}/{self.kernel.boundary}",
            ("strided " if self.strided else "") + ("widening" if self.widening else "plain"),
        ]
        if self.form != "paper":
            said.append(f"{self.form} form")
        elif not self.psi:
            said.append("no psi")
        if self.hand_down is not None:
            way = self.hand_down
            said.append(f"handed down by {way.kernel.name if isinstance(way, Resampling) else type(way).__name__}")
        return ", ".join(said)


_LAWS: Mapping[str, Callable[[nn.Module, int, Grid], tuple[int, Grid]]] = {
    "paper": check_zero_constant,
    "difference": check_sample_wise,
    "gated": output_shape,
}
"""What is asked of a block of each form; the answer is the channels and the grid that it gives."""


def _check_gate(threshold: float, reads: int | None, features: int) -> tuple[float, int]:
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 < threshold < float("inf"):
        raise ArrnError(f"threshold is a root mean square of details and must be above 0, got {threshold!r}")
    if reads is None:
        return float(threshold), features
    if isinstance(reads, bool) or not isinstance(reads, int) or not 1 <= reads <= features:
        raise ArrnError(f"reads must be from 1 to the {features} channels that come in, got {reads!r}")
    return float(threshold), reads


def _gated(diff: torch.Tensor, gate: torch.Tensor | None) -> torch.Tensor:
    return diff if gate is None else diff * gate


def _add_first(whole: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    if first.shape[0] == whole.shape[0]:
        return whole + first
    return torch.cat([whole[: first.shape[0]] + first, whole[first.shape[0] :]])
