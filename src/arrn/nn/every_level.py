"""`EveryLevel`: an ARRN without adaptation, as a module."""

from __future__ import annotations

import torch
from torch import nn

from arrn.nn.arrn import ARRN

__all__ = ["EveryLevel"]


class EveryLevel(nn.Module):
    """An ARRN that never skips: every input is interpolated to the top grid and runs every level.

    What adaptation is compared with. Shares its modules with the network.

    Shape: (batch, in_channels, *space) -> (batch, num_classes).
    """

    def __init__(self, model: ARRN) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(x, adapt=False)
        return logits
