"""`Frozen`: a network compiled with weights that no longer change."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch._inductor.config
from torch import nn

__all__ = ["Frozen"]


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
        self._known: set[tuple[torch.Size, torch.dtype]] = set()

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        key = (x.shape, x.dtype)
        if key in self._known:
            return self._compiled(x)
        # Around the call, not an option of torch.compile: the tracer must know too that weights are constants.
        with torch._inductor.config.patch(freezing=True):
            answer = self._compiled(x)
        self._known.add(key)
        return answer
