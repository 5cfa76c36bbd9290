"""`adaptation_discrepancy`: how much skipping levels changes a network's answer."""

from __future__ import annotations

import torch

from arrn.nn.arrn import ARRN, Policy

__all__ = ["adaptation_discrepancy"]


@torch.no_grad()
def adaptation_discrepancy(model: ARRN, x: torch.Tensor, policy: Policy | None = None) -> float:
    """The relative difference between adapted and full evaluation of `x`: |adapted - full| / |full|.

    Rounding for perfect kernels under the policy ``"exact"``; the kernel's own error otherwise.

    Args:
        model: a network in evaluation mode.
        x: shape (batch, in_channels, *space).
        policy: overrides the network's own.
    """
    full = model(x, adapt=False)
    return float((model(x, policy=policy) - full).norm() / full.norm())
