"""`BatchRMSNorm`: a batch norm that only scales, so that zero stays zero."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["BatchRMSNorm"]


class BatchRMSNorm(nn.Module):
    """Divides each channel by its root mean square over batch and space; no centring, no bias.

    In training mode the batch's own mean square is used and averaged into `running_mean_square`; in
    evaluation mode the running value is.

    Shape: (batch, features, *space), unchanged; any number of axes.
    """

    running_mean_square: torch.Tensor

    def __init__(self, features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.features, self.eps, self.momentum = features, eps, momentum
        self.weight = nn.Parameter(torch.ones(features))
        self.register_buffer("running_mean_square", torch.ones(features))

    def scale(self, mean_square: torch.Tensor) -> torch.Tensor:
        """The factor of each channel for the given mean square."""
        return self.weight * torch.rsqrt(mean_square + self.eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean_square = self.running_mean_square
        if self.training:
            # Sums of squares overflow half precision and lose bf16's few digits.
            wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
            mean_square = wide.square().mean(dim=[0, *range(2, x.ndim)])
            with torch.no_grad():
                self.running_mean_square.lerp_(mean_square.to(self.running_mean_square.dtype), self.momentum)
        factor = self.scale(mean_square).to(x.dtype)
        return x * factor.view(1, -1, *[1] * (x.ndim - 2))

    def extra_repr(self) -> str:
        return f"{self.features}, eps={self.eps}, momentum={self.momentum}"
