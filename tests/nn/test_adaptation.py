"""The guarantee: skipping levels changes nothing, and the skipped blocks really do not run."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import arrn
from arrn.nn import (
    ARRN,
    Head,
    InvertedBlock,
    LaplacianResidual,
    Projection,
    ResidualBase,
    count_parameters,
)
from arrn.signal import resample
from arrn.testing import adaptation_discrepancy, awaken_norms
from strategies import APPROXIMATE, Case, cases, relative_error


def blocks_called(model: ARRN, x: torch.Tensor) -> list[int]:
    """Which residuals' blocks run when the model takes `x`."""
    called: list[int] = []
    handles = [
        residual.block.register_forward_hook(lambda *_, n=n: called.append(n))
        for n, residual in enumerate(model.levels)
    ]
    model(x)
    for handle in handles:
        handle.remove()
    return called


def effect_of_blocks(model: ARRN, x: torch.Tensor, count: int) -> float:
    """How much the first `count` blocks change the logits of a signal with all its details."""
    r = model.stem(x)
    for residual in model.levels[:count]:
        r = residual.skip(r)
    for residual in model.levels[count:]:
        r = residual(r)
    return relative_error(model.head(model.base(r)), model(x))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_adapted_equals_full(dtype: torch.dtype, tolerance: float) -> None:
    skipping = []

    @settings(max_examples=80)
    @given(cases(dtype))
    @torch.no_grad()
    def law(case: Case) -> None:
        model, x, level = case.model, case.x, case.level
        skipping.append(level > 0)
        full = model(x, adapt=False)
        adapted = model.at_resolution(case.size)
        assert relative_error(model(x), full) < tolerance
        assert relative_error(adapted(x), full) < tolerance
        assert blocks_called(model, x) == list(range(level, len(model.levels)))
        assert len(adapted.residuals) == len(model.levels) - level
        if level:
            assert count_parameters(adapted) < count_parameters(model)
            assert effect_of_blocks(model, case.full, level) > 1e-2

    law()
    assert sum(skipping) >= len(skipping) / 2


@settings(max_examples=60)
@given(st.data(), cases())
@torch.no_grad()
def test_discretisation_invariance(data: st.DataObject, case: Case) -> None:
    larger = tuple(n + data.draw(st.integers(1, 9)) for n in case.size)
    finer = resample(case.x, larger, case.model.kernel)
    assert relative_error(case.model(finer), case.model(case.x)) < 1e-10


class ZeroPadded(nn.Sequential):
    def __init__(self, features: int) -> None:
        super().__init__(
            nn.Conv2d(features, 8, 1), nn.SiLU(), nn.Conv2d(8, 8, 3, padding=1), nn.SiLU(), nn.Conv2d(8, features, 1)
        )


def hand_built(block: nn.Module, kernel: str = "perfect", **options: object) -> tuple[ARRN, torch.Tensor]:
    model = ARRN(
        stem=Projection(3, 4),
        residuals=[LaplacianResidual(block, 4, 6, 12, 7, kernel, **options)],
        base=ResidualBase(InvertedBlock(6, 2, 1)),
        head=Head(6, 5),
    ).double()
    full = torch.randn(6, 3, 12, 12, dtype=torch.float64)
    awaken_norms(model, full)
    return model, torch.randn(2, 3, 7, 6, dtype=torch.float64)


def test_the_law_needs_constancy_and_psi() -> None:
    good, x = hand_built(InvertedBlock(4, 2, 2))
    assert adaptation_discrepancy(good, x) < 1e-10
    zero_padded, x = hand_built(ZeroPadded(4), check=False)
    assert adaptation_discrepancy(zero_padded, x) > 1e-5
    without_psi, x = hand_built(InvertedBlock(4, 2, 2), psi=False, check=False)
    assert adaptation_discrepancy(without_psi, x) > 1e-5


@pytest.mark.parametrize("kernel", APPROXIMATE, ids=repr)
def test_approximate_kernels_have_a_discrepancy(kernel: arrn.signal.Kernel) -> None:
    model, x = hand_built(InvertedBlock(4, 2, 2), kernel)
    assert 1e-4 < adaptation_discrepancy(model, x) < 1


class Strided(nn.Sequential):
    """Samples down by itself: 21 -> 11, as 3x3 stride 2 padding 1 does."""

    def __init__(self, features: int, out_features: int) -> None:
        super().__init__(
            nn.Conv2d(features, 8, 3, padding=1, padding_mode="replicate"),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, out_features, 3, stride=2, padding=1, padding_mode="replicate", bias=False),
        )


@pytest.mark.parametrize(
    ("block", "strided", "widening"),
    [
        (InvertedBlock(4, 2, 1), False, False),
        (nn.Sequential(InvertedBlock(4, 2, 1), nn.Conv2d(4, 6, 1)), False, True),
        (Strided(4, 6), True, True),
        (Strided(4, 4), True, False),
    ],
    ids=["plain", "widening", "strided", "strided, channels kept"],
)
def test_every_form_of_the_residual_skips_exactly(block: nn.Module, strided: bool, widening: bool) -> None:
    residual = LaplacianResidual(copy.deepcopy(block), 4, 6, size=21, next_size=11).double()
    assert (residual.strided, residual.widening) == (strided, widening)
    awaken_norms(residual, torch.randn(4, 4, 21, 21, dtype=torch.float64))
    smooth = resample(torch.randn(2, 4, 9, 11, dtype=torch.float64), 21)
    detailed = torch.randn(2, 4, 21, 21, dtype=torch.float64)
    with torch.no_grad():
        assert residual(detailed).shape == (2, 6, 11, 11)
        assert relative_error(residual(smooth), residual.skip(smooth)) < 1e-12
        assert relative_error(residual(smooth), residual.projection(residual.down(smooth))) < 1e-12
        assert relative_error(residual.skip(detailed), residual(detailed)) > 1e-2
        both = residual.train()(torch.cat([smooth, detailed]))
        assert relative_error(both[:2], residual.skip(smooth)) < 1e-12


@torch.no_grad()
def test_many_channels_are_projected_before_they_are_interpolated() -> None:
    model = arrn.create_model("arrn", sizes=(12, 6), features=(4, 6), depth=1, in_channels=40).double()
    awaken_norms(model, torch.randn(6, 40, 12, 12, dtype=torch.float64))
    x = torch.randn(2, 40, 5, 6, dtype=torch.float64)
    adapted = model.at_resolution((5, 6))
    order: list[str] = []
    for name in ("projection", "resampling"):
        getattr(adapted, name).register_forward_hook(lambda *_, name=name: order.append(name))
    assert relative_error(adapted(x), model(x, adapt=False)) < 1e-12
    assert relative_error(model(x), model(x, adapt=False)) < 1e-12
    assert order == ["projection", "resampling"]


@torch.no_grad()
def test_cheap_policy_smooths_down_to_the_next_lower_grid() -> None:
    model = arrn.create_model(
        "arrn", sizes=((16, 12), (9, 7), (5, 4)), features=(4, 6, 8), depth=1, expansion=2
    ).double()
    awaken_norms(model, torch.randn(6, 3, 16, 12, dtype=torch.float64))
    assert [model.level(size, "cheap") for size in ((16, 12), (20, 30), (15, 12), (9, 7), (8, 11), (5, 4), (3, 3))] == [
        0, 0, 1, 1, 2, 2, 2,
    ]  # fmt: skip
    assert [model.level(size) for size in ((16, 12), (20, 30), (15, 12), (9, 7), (8, 11), (5, 4), (3, 3))] == [
        0, 0, 0, 1, 0, 2, 2,
    ]  # fmt: skip
    x = torch.randn(2, 3, 14, 10, dtype=torch.float64)
    expected = model(resample(x, (9, 7)))
    assert relative_error(model(x, policy="cheap"), expected) < 1e-12
    assert relative_error(model.at_resolution((14, 10), "cheap")(x), expected) < 1e-12
    assert relative_error(model(x), expected) > 1e-3


def test_adapted_network_shares_what_it_keeps_and_folds_the_rest() -> None:
    model = arrn.create_model("arrn", sizes=(16, 8, 4), features=(4, 6, 8), depth=1)
    adapted = model.at_resolution(8)
    assert adapted.residuals[0] is model.residuals[1]
    assert adapted.base is model.base
    assert adapted.head is model.head
    expected = model.levels[0].projection.weight.double() @ model.stem.weight.double()
    assert isinstance(adapted.projection.weight, nn.Parameter)
    assert torch.equal(adapted.projection.weight, expected.float())


def test_adapted_network_refuses_other_sizes() -> None:
    adapted = arrn.create_model("arrn", sizes=(16, 8), features=(4, 6), depth=1).at_resolution((8, 7))
    with pytest.raises(arrn.ArrnError, match="cast to inputs of size 8x7, got 8"):
        adapted(torch.rand(1, 3, 8, 8))


@pytest.mark.parametrize("block", ["inverted", "zero_preserving"])
@torch.no_grad()
def test_fusing_changes_nothing_but_removes_the_norms(block: str) -> None:
    model = arrn.create_model("arrn", sizes=(12, 6), features=(4, 6), depth=2, block=block).double()
    awaken_norms(model, torch.randn(6, 3, 12, 12, dtype=torch.float64))
    x = torch.randn(2, 3, 11, 12, dtype=torch.float64)
    adapted = model.at_resolution((11, 12))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fused = adapted.fuse()
    assert relative_error(fused(x), adapted(x)) < 1e-12
    kinds = {type(module).__name__ for module in fused.modules()}
    assert not kinds & {"BatchNorm2d", "BatchRMSNorm"}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@torch.no_grad()
def test_adaptation_on_the_device(device: torch.device) -> None:
    model = arrn.create_model("arrn", sizes=(16, 11, 6), features=(8, 12, 16)).to(device, torch.float64)
    awaken_norms(model, torch.randn(8, 3, 16, 16, dtype=torch.float64, device=device))
    for size in (16, 13, 11, 9, 6, 4):
        x = torch.randn(2, 3, size, size, dtype=torch.float64, device=device)
        assert adaptation_discrepancy(model, x) < 1e-10
        assert relative_error(model.at_resolution(size)(x), model(x)) < 1e-12
