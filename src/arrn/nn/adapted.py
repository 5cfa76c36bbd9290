"""An ARRN for one use: at one resolution, at every level, or frozen for inference."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Sequence

import torch
from torch import nn

from arrn.errors import ArrnError
from arrn.nn.chain import BlocklessLevel, LaplacianChain
from arrn.nn.dropout import LaplacianDropout
from arrn.nn.fusion import fold_batch_norms
from arrn.nn.projection import Projection, projecting_first_pays
from arrn.nn.resampling import Resampling
from arrn.nn.residual import LaplacianResidual
from arrn.signal.grid import Grid, check_signal, format_grid
from arrn.signal.kernels import Kernel


class AdaptedARRN(LaplacianChain):
    """What `ARRN.at_resolution` returns: a plain module for inputs of one size.

    It shares the residuals, base and head that it keeps with the network it came from; the chain of
    skipped projections is folded, in float64, into one new parameter. It takes one size only, so what
    it does never depends on the shape of its input, and it compiles and exports on its own.

    Shape: (batch, in_channels, *size) -> (batch, num_classes).
    """

    def __init__(
        self,
        size: Grid,
        grid: Grid,
        kernel: Kernel,
        projection: Projection,
        residuals: Sequence[LaplacianResidual],
        base: nn.Module,
        head: nn.Module,
        dropout: LaplacianDropout,
        skipped: int,
        blockless: Sequence[BlocklessLevel] = (),
    ) -> None:
        super().__init__(residuals, base, head, dropout, skipped, blockless)
        self.size = size
        self.projection = projection
        weight = projection.weight
        self.resampling = Resampling(size, grid, kernel).to(device=weight.device, dtype=weight.dtype)
        self._project_first = projecting_first_pays(projection.in_features, projection.out_features, size, grid)

    def _enter(self, x: torch.Tensor, level: int) -> torch.Tensor:
        first, then = (self.projection, self.resampling) if self._project_first else (self.resampling, self.projection)
        r: torch.Tensor = then(first(x))
        return r

    def _check(self, x: torch.Tensor) -> None:
        grid = check_signal(x, len(self.size), self.projection.in_features, self.projection.weight)
        if grid != self.size:
            raise ArrnError(
                f"this network was cast to inputs of size {format_grid(self.size)}, got {format_grid(grid)}: "
                f"call at_resolution({grid}) on the whole network"
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._check(x)
        return self._logits(x, 0)

    def forward_features(self, x: torch.Tensor) -> torch.Tensor:
        """The base's output, shape (batch, features, *base grid)."""
        self._check(x)
        return self._features(x, 0)

    def fuse(self) -> AdaptedARRN:
        """A copy in evaluation mode with its batch norms folded into the convolutions before them.

        The copy shares nothing with this network; the numbers are the same to rounding.
        """
        return fold_batch_norms(copy.deepcopy(self).eval())

    def extra_repr(self) -> str:
        return f"input {format_grid(self.size)}, {self.skipped} levels skipped"


# How many forms of input are compiled; torch.compile alone would give up after 8, without a word to the caller.
_MOST_FORMS = 64


class Frozen(nn.Module):
    """A network through `torch.compile`, its weights taken for constants: for inference only, without gradients.

    On a CPU convolutions then have their weights packed once and do the activation after them. The first call with
    inputs of a shape compiles; what is done to the weights afterwards is not seen.

    Args:
        network: such as ``model.at_resolution(16).fuse()``; set to evaluation mode.

    Shape: the network's.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network.eval()
        self._compiled: Callable[[torch.Tensor], torch.Tensor] = torch.compile(network, dynamic=False)
        self._known: set[Hashable] = set()

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        form = _form(x)
        if form in self._known:
            return self._compiled(x)
        import torch._dynamo.config  # with the compiler, which takes a while
        import torch._inductor.config

        # Around the call, not an option of torch.compile: the tracer must know too that weights are constants.
        with (
            torch._inductor.config.patch(freezing=True),
            torch._dynamo.config.patch(recompile_limit=_MOST_FORMS),
        ):
            answer = self._compiled(x)
        self._known.add(form)
        return answer


def _form(x: torch.Tensor) -> Hashable:
    """All of an input, and of where it is called, that has the compiler begin anew."""
    kind = x.device.type
    cast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    modes = (cast, torch.is_autocast_cache_enabled(), torch.is_inference_mode_enabled())
    return x.shape, x.stride(), x.dtype, x.device, *modes
