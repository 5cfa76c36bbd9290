"""Transplanting a network of one's own: where it is cut, what is kept, what is refused."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import arrn
from arrn.models.transplanting.replacements import ChannelDropout
from arrn.nn import ReplicateConv2d, check_zero_constant
from arrn.testing import adaptation_discrepancy, awaken_norms
from sources import Skipping, layer, plain
from strategies import relative_error


def awake(model: arrn.nn.ARRN) -> arrn.nn.ARRN:
    model = model.double()
    awaken_norms(model, torch.randn(8, model.in_channels, *model.grids[0], dtype=torch.float64))
    return model


@torch.no_grad()
def effect_of_blocks(model: arrn.nn.ARRN, level: int) -> float:
    """How much the blocks above `level` matter to an input of full resolution."""
    x = torch.randn(4, model.in_channels, *model.grids[0], dtype=torch.float64)
    r = model.stem(x)
    for n, residual in enumerate(model.levels):
        r = residual.skip(r) if n < level else residual(r)
    return relative_error(model.head(model.base(r)), model(x))


@pytest.mark.parametrize(
    ("source", "ladder"), [(plain, (32, 16, 8)), (Skipping, (32, 16, 8))], ids=["sequential", "functional"]
)
@torch.no_grad()
def test_the_law_holds_and_upper_levels_are_skipped(source, ladder: tuple[int, ...]) -> None:
    model = awake(arrn.transplant(source(), size=32))
    assert model.sizes == ladder
    assert not model.training
    for residual in model.levels:
        check_zero_constant(residual.block, residual.in_features, residual.size)
    ran: list[int] = []
    for n, residual in enumerate(model.levels):
        residual.block.register_forward_hook(lambda *_, n=n: ran.append(n))
    for size in (32, 24, 17, 16, 11, 8, 5):
        x = torch.randn(2, 3, size, size + size % 2, dtype=torch.float64)
        ran.clear()
        adapted = model(x)
        assert ran == list(range(model.level(tuple(x.shape[2:])), len(model.levels)))
        assert relative_error(adapted, model(x, adapt=False)) < 1e-10
    for level in range(1, len(ladder)):
        assert effect_of_blocks(model, level) > 1e-2
    model.float()
    costs = [arrn.nn.multiply_adds(model.at_resolution(size), (1, 3, size, size)) for size in ladder]
    assert costs == sorted(costs, reverse=True)
    assert len(set(costs)) == len(costs)


def test_the_law_needs_replicate_padding() -> None:
    model = arrn.transplant(plain(), size=32)
    for module in model.modules():
        if isinstance(module, ReplicateConv2d):
            module.__class__ = nn.Conv2d
    assert adaptation_discrepancy(awake(model), torch.randn(2, 3, 8, 8, dtype=torch.float64)) > 1e-4
    with pytest.raises(arrn.ConstancyError):
        check_zero_constant(model.levels[0].block, 3, 32)


def test_weights_are_kept_and_the_source_is_left_alone() -> None:
    source = Skipping().eval()
    source.convs[1].weight.requires_grad_(False)
    before = copy.deepcopy(source.state_dict())
    types = [type(module) for module in source.modules()]
    model = arrn.transplant(source, size=32)
    state = {name.partition(".block.")[2]: value for name, value in model.state_dict().items() if ".block." in name}
    state |= {n.removeprefix("base."): v for n, v in model.state_dict().items() if n.startswith("base.")}
    state |= {n.removeprefix("head.layers."): v for n, v in model.state_dict().items() if n.startswith("head.")}
    assert set(state) == set(before)
    assert all(torch.equal(state[name], before[name]) for name in before)
    assert not any(value.data_ptr() == before[name].data_ptr() for name, value in source.state_dict().items())
    assert all(p.data_ptr() not in {q.data_ptr() for q in source.parameters()} for p in model.parameters())
    assert [type(module) for module in source.modules()] == types
    assert not model.training
    assert sum(not parameter.requires_grad for parameter in model.parameters()) == 1
    assert model.projection_parameters == 3 * 3 + 3 * 8 + 8 * 8
    assert arrn.nn.count_parameters(model) - model.projection_parameters == arrn.nn.count_parameters(source)


def test_a_skip_connection_across_a_stride_stays_inside_its_run() -> None:
    model = arrn.transplant(Skipping(), size=32)
    for n, residual in enumerate(model.levels):
        names = dict(residual.block.named_modules())
        assert f"convs.{n}" in names
        assert f"shortcuts.{n}" in names
    assert "stem" in dict(model.levels[0].block.named_modules())  # what precedes the first stride goes with it
    assert [residual.strided for residual in model.levels] == [True, True]


def test_dropout_survives_and_drops_whole_channels_within_residuals() -> None:
    model = arrn.transplant(Skipping(), size=32).train()
    assert [m.p for m in model.levels[0].modules() if isinstance(m, ChannelDropout)] == [0.3]
    assert [m.p for m in model.base.modules() if type(m) is nn.Dropout] == [0.3]
    assert [m.p for m in model.head.modules() if type(m) is nn.Dropout] == [0.5]
    x = torch.rand(4, 8, 5, 6)
    dropped = ChannelDropout(0.5)(x)
    kept = dropped.flatten(2).norm(dim=2) > 0
    assert 0 < kept.sum() < kept.numel()
    assert torch.equal(dropped[kept], 2 * x[kept])
    assert torch.equal(ChannelDropout(0.5).eval()(x), x)


def test_training_with_laplacian_dropout_reaches_every_parameter() -> None:
    model = arrn.transplant(plain(), size=32, dropout=0.5, draw="sample").train()
    F.cross_entropy(model(torch.randn(16, 3, 32, 32)), torch.arange(16) % 5).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@torch.no_grad()
def test_layers_that_overwrite_their_input_do_not_reach_the_levels() -> None:
    class Overwriting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList(nn.Conv2d(n, 4, 3, 2, padding=1) for n in (3, 4, 4))
            self.shortcuts = nn.ModuleList(nn.Conv2d(n, 4, 1, 2) for n in (3, 4, 4))
            self.act = nn.ReLU(inplace=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for conv, shortcut in zip(self.convs, self.shortcuts, strict=True):
                y = self.act(x)
                x = conv(y) + shortcut(y)
            return x.mean((2, 3))

    model = arrn.transplant(Overwriting(), size=16).eval()
    received = model.forward_levels(torch.randn(2, 3, 16, 16))[-2]
    assert (received < 0).any()


def test_channels_classes_and_discarded_residuals() -> None:
    source = plain()
    assert torch.equal(arrn.transplant(source, 32).stem.weight, torch.eye(3))
    grey = arrn.transplant(source, 32, in_channels=np.int64(1), num_classes=np.int64(7))
    assert grey.stem.weight.shape == (3, 1)
    assert grey.eval()(torch.rand(2, 1, 20, 20)).shape == (2, 7)
    assert torch.equal(grey.levels[0].block.get_submodule("0.0").weight, source[0][0].weight)
    assert arrn.transplant(source, 32, num_classes=5).head.layers.get_submodule("9").weight.equal(source[9].weight)
    pooled = arrn.transplant(source, 32, num_classes=0).eval()
    assert pooled(torch.rand(2, 3, 20, 20)).shape == (2, 16)
    assert pooled.num_classes == 0
    pooled.reset_classifier(3)
    assert pooled(torch.rand(2, 3, 20, 20)).shape == (2, 3)
    shorter = arrn.transplant(source, 32, skip_first=1)
    assert shorter.sizes == (32, 16)  # the discarded stride leaves every later grid twice as large
    assert shorter.stem.weight.shape == (8, 3)
    assert shorter.levels[0].block.get_submodule("3.0").weight.equal(source[3][0].weight)


def test_rectangles_other_axes_and_layers_without_padding() -> None:
    assert arrn.transplant(plain(), (33, 20)).sizes == ((33, 20), (17, 10), (9, 5))
    audio = nn.Sequential(
        *(m for n in (1, 4, 4) for m in (nn.Conv1d(n, 4, 5, stride=2, padding=2), nn.BatchNorm1d(4), nn.SiLU())),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 2),
    )  # fmt: skip
    model = awake(arrn.transplant(audio, 64))
    assert model.sizes == (64, 32, 16)
    assert adaptation_discrepancy(model, torch.randn(2, 1, 13, dtype=torch.float64)) < 1e-10
    valid = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3), nn.ReLU(),
        nn.ZeroPad2d((0, 1, 0, 1)), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(8 * 2 * 2, 3),
    )  # fmt: skip
    # Trimming is no change of resolution, padding goes with the pooling it serves, and the last pooling,
    # which has no weights to its name, stays with the base.
    model = awake(arrn.transplant(valid, 28))
    assert model.sizes == (28, 11)
    assert model(torch.rand(2, 3, 11, 9, dtype=torch.float64)).shape == (2, 3)


def test_a_network_that_ends_in_a_signal_gets_a_head_on_request() -> None:
    features = plain()[:6]
    assert arrn.transplant(features, 32).eval()(torch.rand(2, 3, 32, 32)).shape == (2, 16, 4, 4)
    assert arrn.transplant(features, 32, num_classes=3).eval()(torch.rand(2, 3, 32, 32)).shape == (2, 3)


def test_modules_that_cannot_be_traced_stay_whole() -> None:
    class Branching(nn.Module):
        def __init__(self, features: int) -> None:
            super().__init__()
            self.conv = nn.Conv2d(features, features, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.conv(x) if x.shape[2] % 2 == 0 else x + self.conv(x)

    source = nn.Sequential(layer(3, 4, 2), Branching(4), layer(4, 4, 2), Branching(4), layer(4, 4, 2), nn.Flatten())
    model = awake(arrn.transplant(source, 16))
    assert model.sizes == (16, 8, 4)
    assert type(model.levels[0].block.get_submodule("1")).__name__ == "Branching"
    assert adaptation_discrepancy(model, torch.randn(2, 3, 7, 7, dtype=torch.float64)) < 1e-10


@pytest.mark.parametrize("source", [plain, Skipping])
@torch.no_grad()
def test_fusing_folds_the_norms_of_traced_blocks(source) -> None:
    model = awake(arrn.transplant(source(), 32))
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    adapted = model.at_resolution(16)
    before = adapted(x)
    fused = adapted.fuse()
    assert not any(isinstance(module, nn.BatchNorm2d) for module in fused.modules())
    assert relative_error(fused(x), before) < 1e-12
    assert relative_error(adapted(x), before) == 0


def test_added_projections_follow_the_source() -> None:
    model = arrn.transplant(plain().to(torch.bfloat16), 32)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert {parameter.device.type for parameter in arrn.transplant(plain().to("meta"), 32).parameters()} == {"meta"}


def test_the_network_prints_its_ladder() -> None:
    text = str(arrn.transplant(plain(), 32))
    assert "residual  32 -> 16, 3 -> 8 features" in text
    assert "12 -> 16 features" in text
    assert "16 features -> 5 classes" in text


class Backwards(nn.Module):
    """Registers its stem last, and rearranges its input first."""

    def __init__(self, block: int) -> None:
        super().__init__()
        self.rest = plain()[1:]
        self.stem = nn.Conv2d(3 * block**2, 6, 1)
        self.rearranged = nn.PixelUnshuffle(block)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rest(self.stem(self.rearranged(x)))


@pytest.mark.parametrize("block", [1, 2])
def test_channels_are_those_that_the_network_takes(block: int) -> None:
    model = arrn.transplant(Backwards(block), 32 * block).eval()
    assert model.in_channels == 3
    assert model(torch.rand(1, 3, 9, 9)).shape == (1, 5)


class ZeroPadded(nn.Module):
    """A residual layer whose shortcut fills up channels with zeros that it makes as it runs."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(features, 2 * features, 3, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        short = x[:, :, ::2, ::2]
        batch, features, height, width = short.shape
        return torch.relu(self.conv(x) + torch.cat([short, torch.zeros((batch, features, height, width))], 1))


@torch.no_grad()
def test_tensors_made_in_forward_are_taken_along() -> None:
    stages = [ZeroPadded(4 * 2**n) for n in range(3)]
    source = nn.Sequential(nn.Conv2d(3, 4, 3, 1, 1), *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3))
    model = arrn.transplant(source, 32).eval()
    assert model.sizes == (32, 16, 8)
    assert adaptation_discrepancy(model, torch.randn(2, 3, 11, 11)) < 1e-5
