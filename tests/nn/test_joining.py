"""Joined convolutions: what is joined answers as before, on a CPU and on a GPU, and what cannot be is left alone."""

import copy
from collections.abc import Callable

import pytest
import torch
import torchvision
from hypothesis import given
from hypothesis import strategies as st
from torch import fx, nn

import arrn
from arrn.gpu import reference_path
from arrn.nn import BasicBlock
from arrn.nn.inference import fold_batch_norms
from arrn.nn.joining import ConvolutionReLU, JoinedBlock, join_activations
from arrn.testing import awaken_norms
from strategies import relative_error

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def plain_layers() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), BasicBlock(8, 12, stride=2))


def traced_resnet() -> nn.Module:
    return fx.symbolic_trace(torchvision.models.resnet18(weights=None, num_classes=5).eval())


def prepared(make: Callable[[], nn.Module], x: torch.Tensor) -> tuple[nn.Module, nn.Module]:
    """A network with folded norms, and a copy of the same network with joined activations too."""
    torch.manual_seed(0)
    network = make().to(x.dtype)
    awaken_norms(network, x)
    folded = fold_batch_norms(network.eval())
    return folded, join_activations(copy.deepcopy(folded))


@torch.no_grad()
@pytest.mark.parametrize(("make", "count"), [(plain_layers, 3), (traced_resnet, 17)])
def test_a_joined_network_answers_as_before(make: Callable[[], nn.Module], count: int) -> None:
    x = torch.randn(2, 3, 37, 32, dtype=torch.float64)
    folded, joined = prepared(make, x)
    assert relative_error(joined(x), folded(x)) < 1e-12
    assert sum(isinstance(layer, ConvolutionReLU) for layer in joined.modules()) == count
    assert not any(isinstance(layer, nn.ReLU) for layer in joined.modules())


@torch.no_grad()
@given(
    grid=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    stride=st.integers(1, 2),
    features=st.integers(3, 5),
)
def test_a_joined_block_is_the_block(grid: list[int], stride: int, features: int) -> None:
    block = BasicBlock(3, features, stride, len(grid)).double()
    x = torch.randn(4, 3, *grid, dtype=torch.float64)
    awaken_norms(block, torch.randn(4, 3, *[5] * len(grid), dtype=torch.float64))
    folded = fold_batch_norms(nn.Sequential(block).eval())
    joined = join_activations(copy.deepcopy(folded))
    assert isinstance(joined[0], JoinedBlock)
    assert relative_error(joined(x), folded(x)) < 1e-12


class Doubled(nn.ReLU):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


def with_hook(layers: nn.Sequential, place: int) -> nn.Sequential:
    layers[place].register_forward_hook(lambda module, inputs, output: output + 1)
    return layers


LEFT: dict[str, Callable[[], nn.Sequential]] = {
    "another activation": lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Identity(), Doubled()),
    "a norm between": lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
    "other padding": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), nn.Identity(), nn.ReLU()
    ),
    "a hook": lambda: with_hook(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Identity(), nn.ReLU()), 0),
    "a hook of the activation": lambda: with_hook(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Identity(), nn.ReLU()), 2),
    "a block with norms": lambda: nn.Sequential(BasicBlock(3, 3)),
}


@torch.no_grad()
@pytest.mark.parametrize("kind", LEFT)
def test_other_layers_stay_as_they_are(kind: str) -> None:
    layers = LEFT[kind]().eval()
    x = torch.randn(2, 3, 6, 6)
    expected, kinds = layers(x), [type(layer) for layer in layers.modules()]
    joined = join_activations(layers)
    assert [type(layer) for layer in joined.modules()] == kinds
    assert torch.equal(joined(x), expected)


def test_outputs_of_a_convolution_that_others_read_stay() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.activation = nn.Conv2d(3, 3, 1), nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.convolution(x)
            answer: torch.Tensor = self.activation(y) + y
            return answer

    network = Reads().eval()
    joined = join_activations(fx.symbolic_trace(network))
    assert not any(isinstance(layer, ConvolutionReLU) for layer in joined.modules())


@needs_gpu
@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("grid", [(32, 32), (7, 9), (6, 4, 8)], ids=str)
def test_joined_kernels_compute_what_the_layers_do(grid: tuple[int, ...], dtype: torch.dtype) -> None:
    ndim = len(grid)
    torch.manual_seed(0)
    network = nn.Sequential(BasicBlock(16, 24, 2, ndim), BasicBlock(24, 24, 1, ndim)).double()
    x = torch.randn(5, 16, *grid, dtype=torch.float64)
    awaken_norms(network, x)
    folded = fold_batch_norms(network.eval())
    expected = folded(x)
    joined = join_activations(copy.deepcopy(folded)).to("cuda", dtype)
    for order in (torch.contiguous_format, torch.channels_last if ndim == 2 else torch.channels_last_3d):
        narrow = x.to("cuda", dtype).contiguous(memory_format=order)
        found = joined(narrow)
        assert relative_error(found.double().cpu(), expected) < (2e-3 if dtype == torch.float32 else 2e-2)
        with reference_path():
            assert relative_error(joined(narrow).double(), found.double()) < (2e-3 if dtype == torch.float32 else 2e-2)


@needs_gpu
def test_gradients_take_the_layers_own_way() -> None:
    joined = join_activations(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Identity(), nn.ReLU()).cuda().eval())
    joined(torch.randn(2, 3, 8, 8, device="cuda")).sum().backward()
    assert all(parameter.grad is not None for parameter in joined.parameters())


@torch.no_grad()
def test_a_fused_network_is_joined() -> None:
    model = arrn.create_model("arrn_mini", sizes=(16, 8), width=4, repeats=(1, 1), own_repeats=()).eval()
    x = torch.randn(2, 3, 16, 16)
    fused = model.at_resolution(16).fuse()
    assert sum(isinstance(layer, JoinedBlock) for layer in fused.modules()) == 4
    assert relative_error(fused(x), model(x)) < 1e-4
