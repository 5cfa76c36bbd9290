"""Folding norms: what is folded answers as before, and what cannot be is left alone."""

from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from arrn.nn import BatchRMSNorm, InvertedBlock, ReplicateConv2d, ResidualStack
from arrn.nn.inference import fold_batch_norms
from arrn.testing import awaken_norms
from strategies import relative_error


class Standardised(nn.Conv2d):
    """A convolution whose weights are standardised as it runs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight - self.weight.mean(dim=(1, 2, 3), keepdim=True)
        return F.conv2d(x, weight, self.bias, padding=self.padding)


def hooked(module: nn.Module) -> nn.Module:
    module.register_forward_hook(lambda module, inputs, output: output.abs())
    return module


def twice_before_a_norm() -> nn.Module:
    shared = nn.Conv2d(4, 4, 1)
    return nn.Sequential(
        OrderedDict(first=shared, first_norm=BatchRMSNorm(4), second=shared, second_norm=BatchRMSNorm(4))
    )


FOLDED = {
    "convolution": lambda: nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)),
    "replicating": lambda: nn.Sequential(ReplicateConv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)),
    "block": lambda: InvertedBlock(4, 2, 2),
    "shared": twice_before_a_norm,
}
LEFT = {
    "subclass": lambda: nn.Sequential(Standardised(4, 4, 3, padding=1), nn.BatchNorm2d(4)),
    "hook": lambda: nn.Sequential(hooked(nn.Conv2d(4, 4, 3, padding=1)), nn.BatchNorm2d(4)),
    "hook of the norm": lambda: nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), hooked(nn.BatchNorm2d(4))),
    "parametrized": lambda: nn.Sequential(weight_norm(nn.Conv2d(4, 4, 3, padding=1)), nn.BatchNorm2d(4)),
    "skips": lambda: ResidualStack(ReplicateConv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)),
}


@pytest.mark.parametrize("kind", [*FOLDED, *LEFT])
@torch.no_grad()
def test_a_folded_network_answers_as_before(kind: str) -> None:
    torch.manual_seed(0)
    network = (FOLDED | LEFT)[kind]().double()
    x = torch.randn(8, 4, 7, 5, dtype=torch.float64)
    awaken_norms(network, x)
    expected = network.eval()(x)
    folded = fold_batch_norms(network)
    assert relative_error(folded(x), expected) < 1e-12
    norms = [layer for layer in folded.modules() if isinstance(layer, nn.BatchNorm2d | BatchRMSNorm)]
    assert bool(norms) == (kind in LEFT)
