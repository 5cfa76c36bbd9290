"""`Frozen`: a network compiled with weights that no longer change."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch
from torch import nn

__all__ = ["Frozen"]

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
