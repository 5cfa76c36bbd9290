"""Laws for tests of your own networks: exact skipping, and weights that make it visible."""

from __future__ import annotations

import torch
from torch import nn

from arrn.nn.arrn import ARRN, Policy
from arrn.nn.blocks import BatchRMSNorm
from arrn.nn.dropout import LaplacianDropout

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, BatchRMSNorm)
_NORMS = (*_BATCH_NORMS, nn.GroupNorm, nn.LayerNorm)


def awaken_norms(model: nn.Module, x: torch.Tensor, seed: int = 0, steps: int = 10) -> nn.Module:
    """Draws the norms' parameters and lets batch norms see data; returns the model in evaluation mode.

    At default initialisation the residual blocks hardly matter, so a law that holds for a fresh
    network says little. Weights become U(0.5, 1.5), biases N(0, 0.5), and running statistics those of
    `x`, after `steps` forward passes in training mode (the layers settle one after another). Layer scales,
    parameters that hold one value only, become U(0.5, 1.5) too.
    """
    generator = torch.Generator().manual_seed(seed)
    norms = [module for module in model.modules() if isinstance(module, _NORMS)]
    momenta = {norm: norm.momentum for norm in norms if isinstance(norm, _BATCH_NORMS)}
    with torch.no_grad():
        for batch_norm in momenta:
            batch_norm.momentum = 1.0
        for norm in norms:
            if norm.weight is None:  # affine=False
                continue
            norm.weight.copy_(torch.empty(norm.weight.shape).uniform_(0.5, 1.5, generator=generator))
            if isinstance(norm, BatchRMSNorm) or norm.bias is None:
                continue
            norm.bias.copy_(torch.empty(norm.bias.shape).normal_(0, 0.5, generator=generator))
        of_norms = {parameter for norm in norms for parameter in norm.parameters()}
        for parameter in model.parameters():
            value = parameter.flatten()[0] if parameter.numel() > 1 else 0
            if parameter not in of_norms and value != 0 and bool((parameter == value).all()):
                parameter.copy_(torch.empty(parameter.shape).uniform_(0.5, 1.5, generator=generator))
        model.train()
        for module in model.modules():
            if isinstance(module, LaplacianDropout):  # every level is to see all of x
                module.eval()
        for _ in range(steps):
            model(x)
    for batch_norm, momentum in momenta.items():
        batch_norm.momentum = momentum
    return model.eval()


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
