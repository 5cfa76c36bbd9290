"""`awaken_norms`: makes a fresh network behave like a trained one, for checks that need it."""

from __future__ import annotations

import torch
from torch import nn

from arrn.nn.dropout import LaplacianDropout
from arrn.nn.normalization import BatchRMSNorm

__all__ = ["awaken_norms"]

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, BatchRMSNorm)


def awaken_norms(model: nn.Module, x: torch.Tensor, seed: int = 0, steps: int = 10) -> nn.Module:
    """Draws the batch norms' parameters and lets them see data; returns the model in evaluation mode.

    At default initialisation the residual blocks hardly matter, so a law that holds for a fresh
    network says little. Weights become U(0.5, 1.5), biases N(0, 0.5), and running statistics those of
    `x`, after `steps` forward passes in training mode (the layers settle one after another).
    """
    generator = torch.Generator().manual_seed(seed)
    norms = [module for module in model.modules() if isinstance(module, _NORMS)]
    momenta = [norm.momentum for norm in norms]
    with torch.no_grad():
        for norm in norms:
            norm.momentum = 1.0
            if norm.weight is None:  # affine=False
                continue
            norm.weight.copy_(torch.empty(norm.weight.shape).uniform_(0.5, 1.5, generator=generator))
            if isinstance(norm, BatchRMSNorm):
                continue
            norm.bias.copy_(torch.empty(norm.bias.shape).normal_(0, 0.5, generator=generator))
        model.train()
        for module in model.modules():
            if isinstance(module, LaplacianDropout):  # every level is to see all of x
                module.eval()
        for _ in range(steps):
            model(x)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return model.eval()
