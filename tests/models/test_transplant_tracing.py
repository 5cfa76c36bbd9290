"""Networks that ask for their mode, stride by functions, come in wrappers or read sizes late, as users write them."""

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import arrn
from arrn.models.transplanting.replacements import ChannelDropout
from arrn.testing import adaptation_discrepancy
from strategies import relative_error


class Tutorial(nn.Module):
    """In the style of PyTorch's MNIST tutorial: no layer strides, and dropout asks for the mode."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(n, 6, 3) for n in (1, 6, 6))
        self.last = nn.Conv2d(6, 8, 3)
        self.fc1 = nn.Linear(8 * 2 * 2, 12)
        self.fc2 = nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv in self.convs:
            x = F.dropout(F.max_pool2d(F.relu(conv(x)), 2), 0.2, training=self.training)
        x = torch.flatten(F.relu(self.last(x)), 1)
        x = F.dropout(F.relu(self.fc1(x)), 0.5, training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)


class Branching(Tutorial):
    """What a trace settles as in evaluation mode, rather than leave the network without a place to cut."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x + torch.randn_like(x) if self.training else x)


class Around(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x / 2)


class Late(nn.Module):
    """The size of the batch is read off the input at the end of all layers, or, for comparison, at once."""

    def __init__(self, read: Callable[[torch.Tensor], int], early: bool = False) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(m for n in (1, 4, 4, 4) for m in (nn.Conv2d(n, 4, 3, stride=2), nn.ReLU())))
        self.fc = nn.Linear(4, 3)
        self.read, self.early = read, early

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.early:
            batch = self.read(x)
        y = self.layers(x).mean((2, 3))
        if not self.early:
            batch = self.read(x)
        return self.fc(y.view(batch, -1))


@torch.no_grad()
def check_law(model: arrn.nn.ARRN, source: nn.Module) -> None:
    """Adapted equals full; and the pieces, one after the other, are the source (where it pads nothing)."""
    model, source = model.double().eval(), source.double().eval()
    for size in (*(min(grid) for grid in model.grids), 7, 5):
        assert adaptation_discrepancy(model, torch.randn(3, 1, size, size, dtype=torch.float64)) < 1e-12
    x = torch.randn(3, 1, *model.grids[0], dtype=torch.float64)
    r = x
    for residual in model.levels:
        r = residual.block(r)
    assert relative_error(model.head(model.base(r)), source(x)) < 1e-12


def same(net: nn.Module) -> nn.Module:
    return net


@pytest.mark.parametrize(
    ("wrap", "content"),
    [
        (same, same),
        (Around, Around),
        (nn.DataParallel, same),
        (torch.compile, same),
        (lambda net: Around(nn.DataParallel(net)), Around),
        (
            lambda net: torch.compile(Around(nn.DataParallel(Around(torch.compile(net))))),
            lambda net: Around(Around(net)),
        ),
    ],
    ids=["bare", "around", "parallel", "compiled", "parallel inside", "several"],
)
@pytest.mark.parametrize("kind", [Tutorial, Branching])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch 2.11's own, as its compiler is loaded
def test_strides_by_functions_are_found(
    kind: type[Tutorial], wrap: Callable[[nn.Module], nn.Module], content: Callable[[nn.Module], nn.Module]
) -> None:
    net = kind()
    source = wrap(net).eval().cpu()  # DataParallel puts what it is given on a GPU
    types = [type(module) for module in source.modules()]
    model = arrn.transplant(source, 46)
    assert model.sizes == (46, 20, 8)
    assert not model.training
    assert [m.p for residual in model.levels for m in residual.modules() if type(m) is ChannelDropout] == [0.2, 0.2]
    assert [m.p for m in model.base.modules() if type(m) is nn.Dropout] == [0.2]
    assert [m.p for m in model.head.modules() if type(m) is nn.Dropout] == [0.5]
    assert not any("_orig_mod" in name or "module" in name for name in model.state_dict())
    assert [type(module) for module in source.modules()] == types  # the source keeps its wrappers
    check_law(model, content(net))


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_a_network_in_training_by_several_processes() -> None:
    source = nn.parallel.DistributedDataParallel(Tutorial())
    model = arrn.transplant(source, 46)
    assert model.sizes == (46, 20, 8)
    assert model.training
    check_law(model, source.module)


def test_one_stride_leaves_a_module_that_asks_for_its_mode_whole() -> None:
    class Pool(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.max_pool2d(2 * x if self.training else x, 2)

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.fc(x.mean((2, 3)))
            return x if self.training else x.softmax(1)

    pool = Pool()  # called at three resolutions, but each time once
    source = nn.Sequential(*(m for n in (1, 4, 4) for m in (nn.Conv2d(n, 4, 3), nn.ReLU(), pool)), Head())
    model = arrn.transplant(source, 46)
    assert model.sizes == (46, 20)
    assert all(any(isinstance(m, Pool) for m in piece.modules()) for piece in (model.levels[0].block, model.base))
    assert isinstance(model.head.layers.get_submodule("9"), Head)
    check_law(model, source)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.size(0),
        lambda x: x.shape[0],
        lambda x: x.size()[0],
        lambda x: 2 * x.size(dim=0) // 2,
        lambda x: len(x),
    ],
    ids=["size", "shape", "whole shape", "computed", "len"],
)
def test_sizes_may_be_read_late(read: Callable[[torch.Tensor], int]) -> None:
    late, early = Late(read), Late(read, early=True)
    early.load_state_dict(late.state_dict())
    torch.manual_seed(0)
    model = arrn.transplant(late, 63)
    torch.manual_seed(0)
    same = arrn.transplant(early, 63)
    assert model.sizes == same.sizes == (63, 31, 15, 7)
    x = torch.randn(3, 1, 20, 20)
    assert torch.equal(model.eval()(x), same.eval()(x))
    check_law(model, late)


@pytest.mark.parametrize("late", [False, True])
def test_a_piece_reads_sizes_off_its_own_signal(late: bool) -> None:
    class Halving(nn.Module):
        def __init__(self, features: int) -> None:
            super().__init__()
            self.conv = nn.Conv2d(features, 4, 2, stride=2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.conv(x) if late else x
            half = x.size(2) // 2, x.size(3) // 2
            y = y if late else self.conv(x)
            return y + F.adaptive_avg_pool2d(x, half).mean(1, keepdim=True)

    source = nn.Sequential(Halving(1), Halving(4), Halving(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = arrn.transplant(source, 32)
    assert model.sizes == (32, 16, 8)
    check_law(model, source)
    # Without the first run all other grids are larger: numbers put in for the sizes would be wrong.
    shorter = arrn.transplant(source, 32, skip_first=1).double().eval()
    assert shorter.sizes == (32, 16)
    assert adaptation_discrepancy(shorter, torch.randn(2, 1, 9, 9, dtype=torch.float64)) < 1e-12


def test_len_is_left_as_it_was() -> None:
    arrn.transplant(Late(lambda x: len(x)), 63)
    assert "len" not in globals()


class OwnLinear(nn.Linear):
    """A classifier of a library's own class, as timm's: torch.fx would look into it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight, self.bias)


@pytest.mark.parametrize("bias", [True, False])
def test_a_classifier_of_a_subclass_is_found(bias: bool) -> None:
    layers = [nn.Conv2d(3, 4, 3, stride=2, padding=1) if n == 0 else nn.Conv2d(4, 4, 2, stride=2) for n in range(3)]
    source = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), OwnLinear(4, 7, bias=bias))
    model = arrn.transplant(source, 32)
    assert model.num_classes == 7
    changed = arrn.transplant(source, 32, num_classes=5)
    assert changed(torch.rand(2, 3, 9, 9)).shape == (2, 5)
    shapes = {name: tensor.shape for name, tensor in changed.state_dict().items()}
    assert shapes.keys() == model.state_dict().keys()  # also without a bias
