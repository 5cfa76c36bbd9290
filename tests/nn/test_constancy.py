"""The constancy checker: what it accepts, what it refuses, and whom it names."""

import copy

import pytest
import torch
from torch import nn

import arrn
from arrn.nn import InvertedBlock, LaplacianResidual, ReplicateConv2d, ZeroPreservingBlock, check_zero_constant


def conv(mode: str = "replicate", **options: object) -> nn.Conv2d:
    return nn.Conv2d(4, 4, 3, padding=1, padding_mode=mode, **options)


class SqueezeExcitation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 2, 1), nn.SiLU(), nn.Conv2d(2, 4, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(self.gate(x))


class Attention(nn.Module):
    def __init__(self, positions: int = 0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.attend = nn.MultiheadAttention(4, 2, batch_first=True)
        self.position = nn.Parameter(torch.zeros(1, positions, 4)) if positions else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        if self.position is not None:
            tokens = tokens + self.position
        tokens = self.norm(tokens)
        return self.attend(tokens, tokens, tokens)[0].transpose(1, 2).reshape(x.shape)


class Shrink(nn.Module):
    """Makes signals small, as a layer scale does."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * x


class ConvNeXtLike(nn.Module):
    """Works on channels last inside, with a layer scale that starts near zero."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mix = nn.Conv2d(4, 4, 7, padding=3, padding_mode=mode, groups=4)
        self.norm = nn.LayerNorm(4)
        self.expand = nn.Linear(4, 8)
        self.contract = nn.Linear(8, 4)
        self.scale = nn.Parameter(torch.full((4, 1, 1), 1e-6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.mix(x).permute(0, 2, 3, 1))
        y = self.contract(torch.nn.functional.gelu(self.expand(y)))
        return x + self.scale * y.permute(0, 3, 1, 2)


ACCEPTED = {
    "replicate": nn.Sequential(conv(), nn.BatchNorm2d(4), nn.SiLU(), conv()),
    "reflect": nn.Sequential(conv("reflect"), nn.BatchNorm2d(4), nn.SiLU(), conv("reflect")),
    "circular": nn.Sequential(conv("circular"), nn.BatchNorm2d(4), nn.SiLU(), conv("circular")),
    "own replicate": nn.Sequential(ReplicateConv2d(4, 4, 5, padding=2), nn.ReLU(), ReplicateConv2d(4, 4, 3, padding=1)),
    "first zero padding without bias before it": nn.Sequential(conv("zeros"), nn.BatchNorm2d(4), nn.SiLU(), conv()),
    "group norm": nn.Sequential(conv(), nn.GroupNorm(2, 4), nn.SiLU(), conv()),
    "instance norm last": nn.Sequential(conv(), nn.InstanceNorm2d(4)),
    "instance norm between": nn.Sequential(conv(), nn.InstanceNorm2d(4), nn.SiLU(), conv()),
    "instance norm with scales": nn.Sequential(conv(), nn.InstanceNorm2d(4, affine=True), nn.SiLU(), conv()),
    "two instance norms": nn.Sequential(conv(), nn.InstanceNorm2d(4), nn.ReLU(), conv(), nn.InstanceNorm2d(4)),
    "squeeze-excitation": nn.Sequential(conv(), SqueezeExcitation(), conv()),
    "attention": nn.Sequential(conv(), Attention()),
    "channels last inside": ConvNeXtLike("replicate"),
    "channel dropout": nn.Sequential(conv(), nn.Dropout2d(0.5), conv()),
    "max pooling": nn.Sequential(conv(), nn.MaxPool2d(3, 1, padding=1)),
    "average pooling": nn.Sequential(conv(), nn.AvgPool2d(3, 1, padding=1, count_include_pad=False)),
    "the paper's": InvertedBlock(4, 2, 3),
    "zero-preserving": ZeroPreservingBlock(4, 2, 2),
}


@pytest.mark.parametrize("block", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepts(block: nn.Module) -> None:
    assert check_zero_constant(block, 4, 9) == (4, (9, 9))
    assert check_zero_constant(block, 4, (9, 6)) == (4, (9, 6))


REFUSED = {
    "zero padding after a bias": (nn.Sequential(conv(), nn.ReLU(), conv("zeros")), "2"),
    "zero padding after a batch norm": (
        nn.Sequential(conv(bias=False), nn.BatchNorm2d(4), nn.SiLU(), nn.Sequential(conv("zeros"))),
        "3.0",
    ),
    "zero padding before an instance norm": (nn.Sequential(conv(), conv("zeros"), nn.InstanceNorm2d(4)), "1"),
    "zero padding in a block whose answer is small": (nn.Sequential(conv(), conv("zeros"), Shrink(1e-4)), "1"),
    "average pooling that counts its padding": (nn.Sequential(conv(), nn.AvgPool2d(3, 1, padding=1)), "1"),
    "attention with positions": (nn.Sequential(conv(), Attention(positions=81)), "1"),
    "zero padding, channels last inside": (nn.Sequential(nn.Conv2d(4, 4, 1), ConvNeXtLike("zeros")), "1.mix"),
    "element-wise dropout": (nn.Sequential(conv(), nn.Dropout(0.5)), "1"),
    "affine parameters over space": (nn.Sequential(conv(), nn.LayerNorm([4, 9, 9])), "1"),
}


@pytest.mark.parametrize(("block", "culprit"), REFUSED.values(), ids=REFUSED.keys())
def test_refuses_and_names_the_submodule(block: nn.Module, culprit: str) -> None:
    with pytest.raises(arrn.ConstancyError) as caught:
        check_zero_constant(block, 4, 9)
    assert caught.value.submodule == culprit
    assert caught.value.deviation > 1e-3
    assert f"submodule '{culprit}'" in str(caught.value)
    assert isinstance(caught.value, arrn.ArrnError)


class Unit(nn.Module):
    """Every sample's features divided by their length: 0 / 0 for a zero input."""

    def __init__(self, claim: bool = False) -> None:
        super().__init__()
        self.preserves_zero = claim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / x.norm(dim=1, keepdim=True)


def test_an_answer_that_is_no_number_is_refused() -> None:
    with pytest.raises(
        arrn.ConstancyError, match=r"NaN or infinity for an all-zero input, because of submodule '1' \(Unit\)"
    ) as caught:
        check_zero_constant(nn.Sequential(conv("zeros", bias=False), Unit()), 4, 9)
    assert caught.value.submodule == "1"
    with pytest.raises(arrn.ConstancyError, match="values of up to inf"):
        check_zero_constant(Unit(claim=True), 4, 9)


class Averaging(nn.Module):
    """Makes its weights as it runs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.conv2d(x, torch.ones(x.shape[1], 1, 3, 3) / 9, groups=x.shape[1])


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_block_may_make_tensors_of_the_usual_dtype_on_the_usual_device(device: str) -> None:
    block = nn.Sequential(nn.Conv2d(4, 6, 1), Averaging()).to(device)
    assert check_zero_constant(block, 4, 9) == (6, (7, 7))
    assert torch.get_default_dtype() == torch.float32


def test_message_says_what_to_do() -> None:
    with pytest.raises(arrn.ConstancyError, match="padding_mode='replicate', 'reflect' or 'circular'"):
        check_zero_constant(REFUSED["zero padding after a bias"][0], 4, 9)
    with pytest.raises(arrn.ConstancyError, match="count_include_pad=False"):
        check_zero_constant(REFUSED["average pooling that counts its padding"][0], 4, 9)
    with pytest.raises(arrn.ConstancyError, match="Dropout2d"):
        check_zero_constant(REFUSED["element-wise dropout"][0], 4, 9)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_one_number_follows_the_blocks_own_axes(ndim: int) -> None:
    assert check_zero_constant(InvertedBlock(3, 2, 1, ndim), 3, 5) == (3, (5,) * ndim)


class ClaimsZero(nn.Conv2d):
    preserves_zero = True


def test_a_false_claim_of_zero_is_refused() -> None:
    with pytest.raises(arrn.ConstancyError, match="declares preserves_zero but returns"):
        check_zero_constant(ClaimsZero(4, 4, 1), 4, 6)
    block = ZeroPreservingBlock(4, 2, 1)
    block.body[1] = nn.BatchNorm2d(8)
    with pytest.raises(arrn.ConstancyError, match=r"because of submodule 'body.1' \(BatchNorm2d\)"):
        check_zero_constant(block, 4, 6)


def test_the_block_and_the_random_state_are_left_alone() -> None:
    block = nn.Sequential(conv(), nn.BatchNorm2d(4), nn.Dropout2d(0.5))
    before, state = copy.deepcopy(block.state_dict()), torch.get_rng_state()
    check_zero_constant(block, 4, 6)
    assert all(torch.equal(value, before[name]) for name, value in block.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert block.training


def test_building_a_residual_runs_the_check_unless_told_otherwise() -> None:
    block = REFUSED["zero padding after a batch norm"][0]
    with pytest.raises(arrn.ConstancyError):
        LaplacianResidual(block, 4, 4, 8, 4)
    LaplacianResidual(block, 4, 4, 8, 4, check=False)
    with pytest.raises(arrn.ArrnError, match="psi=False needs a block that declares preserves_zero"):
        LaplacianResidual(InvertedBlock(4), 4, 4, 8, 4, psi=False)


def test_a_block_that_does_not_fit_is_refused() -> None:
    for check in (True, False):
        with pytest.raises(arrn.ArrnError, match=r"the block fails on an input of shape \(2, 3, 8, 8\): .*channel"):
            LaplacianResidual(InvertedBlock(4), 3, 4, 8, 4, check=check)


def test_a_block_that_returns_no_signal_is_refused() -> None:
    with pytest.raises(arrn.ArrnError, match=r"must return a signal .* got \(2, 4\)"):
        check_zero_constant(nn.Sequential(conv(), nn.AdaptiveAvgPool2d(1), nn.Flatten()), 4, 9)


def test_rounding_in_deep_stacks_of_batch_norms_is_no_violation() -> None:
    """Ten batch norms that saw constants alone would raise rounding errors to the size of a violation."""
    layers = [conv(bias=False), nn.BatchNorm2d(4), nn.SiLU()]
    block = nn.Sequential(*(copy.deepcopy(layer) for _ in range(10) for layer in layers))
    assert check_zero_constant(block, 4, 8) == (4, (8, 8))
    block[15] = nn.Conv2d(4, 4, 3, padding=1)
    with pytest.raises(arrn.ConstancyError) as caught:
        check_zero_constant(block, 4, 8)
    assert caught.value.submodule == "15"
