"""`SourceHead`: the end of a transplanted network, from the base's output to its answer."""

from __future__ import annotations

import torch
from torch import nn

from arrn.models.fixed import count_classes, fit_classes
from arrn.nn.head import ClassifierHead

__all__ = ["SourceHead"]


class SourceHead(ClassifierHead):
    """A network's own pooling and classifier, with its weights; the classifier is the last linear layer.

    Shape: (batch, features, *space) -> what the source gave.
    """

    def __init__(self, layers: nn.Module, features: int) -> None:
        super().__init__()
        self.features = features
        self.layers = layers
        self.num_classes = count_classes(layers)

    def reset_classifier(self, num_classes: int) -> None:
        fit_classes(self.layers, num_classes)
        self.num_classes = num_classes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.layers(x)
        return answer
