"""What follows the last residual: the base block on the lowest grid, and the classifier."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import nn

from arrn.errors import ArrnError
from arrn.signal.operators import is_channels_last


class ResidualBase(nn.Module):
    """r + b(r) on the last grid: always run, without constant rejection.

    The residuals above contribute signals of zero mean, which average pooling would remove; the base
    is what turns them into features that survive the pooling. The block must leave its input as it is: not begin
    with an activation in place.

    Shape: (batch, features, *space), unchanged.
    """

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, r: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = r + self.block(r)
        return answer


class ClassifierHead(nn.Module, ABC):
    """A head that knows how many features reach it and how many classes it tells apart (0: it returns features)."""

    features: int
    num_classes: int

    @abstractmethod
    def reset_classifier(self, num_classes: int) -> None:
        """A new last layer for `num_classes` classes; with 0 features come out."""


class Head(ClassifierHead):
    """Global average pooling, dropout and a linear layer (the paper's common head).

    Shape: (batch, features, *space) -> (batch, num_classes), or (batch, features) with num_classes=0.
    """

    def __init__(self, features: int, num_classes: int, dropout: float = 0.2) -> None:
        super().__init__()
        if not 0 <= dropout <= 1:
            raise ArrnError(f"the head's dropout must be in [0, 1], got {dropout}")
        self.features = features
        self.dropout = nn.Dropout(dropout)
        self.reset_classifier(num_classes)

    def reset_classifier(self, num_classes: int) -> None:
        """A new linear layer for `num_classes` classes; with 0 the pooled features come out."""
        if num_classes < 0:
            raise ArrnError(f"num_classes must be 0 (features) or more, got {num_classes}")
        self.num_classes = num_classes
        self.classifier: nn.Module = nn.Linear(self.features, num_classes) if num_classes else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Channels go last by name where they are last in memory: the gradient is then laid out as x is.
        if is_channels_last(x):
            pooled = x.movedim(1, -1).mean(dim=tuple(range(1, x.ndim - 1)))
        else:
            pooled = x.mean(dim=tuple(range(2, x.ndim)))
        if self.num_classes == 0:
            return pooled
        logits: torch.Tensor = self.classifier(self.dropout(pooled))
        return logits
