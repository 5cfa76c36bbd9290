"""Fixed-resolution baselines and rivals: the paper's sizes, any input, round trips, refusals."""

from pathlib import Path

import pytest
import torch
from torch import nn

import arrn
from arrn.models import FixedResolution, SpectralConv2d, SwitchableBatchNorm2d, summarise
from arrn.models.fixed import BASELINES
from arrn.signal import WhittakerShannon, resample

pytest.importorskip("torchvision")

# Millions of parameters with 10 classes: the ends of each range are the paper's, the rest torchvision's own.
PAPER = {
    "resnet18": 11.1,
    "resnet101": 42.5,
    "wide_resnet50_2": 66.8,
    "wide_resnet101_2": 124.0,
    "mobilenet_v3_small": 1.52,
    "mobilenet_v3_large": 4.21,
    "efficientnet_v2_s": 20.2,
    "efficientnet_v2_l": 117.2,
}
QUICK = [
    "resnet18",
    "mobilenet_v3_small",
    "mobilenet_v3_large",
    "resnet18_small_stem",
    "resnet18_switchable",
    "fourier_operator",
]
SLOW = sorted(set(BASELINES) - set(QUICK))
EVERY = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]


@pytest.mark.parametrize(("name", "millions"), PAPER.items())
def test_parameters_agree_with_the_paper(name: str, millions: float) -> None:
    assert summarise(name).parameters == pytest.approx(millions * 1e6, rel=0.01)


def test_summaries() -> None:
    adaptive, fixed, switchable, operator = map(
        summarise, ("arrn", "resnet18", "resnet18_switchable", "fourier_operator")
    )
    assert [s.kind for s in (adaptive, fixed, switchable, operator)] == ["adaptive", "fixed", "switchable", "any size"]
    assert adaptive.base_parameters < adaptive.parameters
    assert list(adaptive.multiply_adds) == sorted(adaptive.multiply_adds, reverse=True)
    assert fixed.base_parameters == fixed.parameters
    assert len(switchable.multiply_adds) == 5
    # A 3x3 convolution at stride 1 on 32x32 sees 16 times the samples of the ImageNet stem's first block.
    assert summarise("resnet18_small_stem").multiply_adds[0] > 10 * fixed.multiply_adds[0]


@pytest.mark.parametrize("name", EVERY)
def test_runs_at_any_size_and_survives_saving(name: str, tmp_path: Path) -> None:
    model = arrn.create_model(name, num_classes=5).train()
    loss = nn.functional.cross_entropy(model(torch.randn(4, 3, 32, 32)), torch.arange(4))
    loss.backward()
    # A batch norm of another resolution has no part in it.
    reached = [p.grad is not None for n, p in model.named_parameters() if ".norms." not in n]
    assert all(reached)
    model.eval()
    with torch.no_grad():
        for size in (32, 24, 16, 8, 21):
            assert model(torch.randn(1, 3, size, size)).isfinite().all()
        arrn.save(model, tmp_path)
        x = torch.randn(2, 3, 20, 20)
        assert torch.equal(arrn.load(tmp_path)(x), model(x))


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "resnet18_switchable", "fourier_operator"])
def test_channels_and_classes(name: str, tmp_path: Path) -> None:
    model = arrn.create_model(name, in_channels=1, num_classes=0).eval()
    x = torch.rand(2, 1, 16, 16)
    features = model(x)
    assert features.shape[1] > 10
    model.reset_classifier(7)
    assert model(x).shape == (2, 7)
    arrn.save(model, tmp_path)
    assert arrn.load(tmp_path)(x).shape == (2, 7)
    model.reset_classifier(0)
    assert torch.equal(model(x), features)


@torch.no_grad()
def test_inputs_are_interpolated_to_the_native_size() -> None:
    model = FixedResolution(nn.Sequential(nn.Conv2d(3, 2, 3, stride=2), nn.Flatten()), size=(12, 10)).double()
    assert model.sizes == ((12, 10),)
    x = torch.randn(2, 3, 7, 9, dtype=torch.float64)
    assert torch.allclose(model(x), model.network(resample(x, (12, 10))))


@torch.no_grad()
def test_switchable_keeps_statistics_apart() -> None:
    model = arrn.create_model("resnet18_switchable", sizes=(16, 8)).train()
    norm = next(m for m in model.modules() if isinstance(m, SwitchableBatchNorm2d))
    model(torch.randn(4, 3, 7, 8))
    assert int(norm.norms[0].num_batches_tracked) == 0
    assert int(norm.norms[1].num_batches_tracked) == 1
    model(torch.randn(4, 3, 9, 8))
    assert int(norm.norms[0].num_batches_tracked) == 1


@torch.no_grad()
def test_switchable_runs_small_inputs_on_small_grids() -> None:
    model = arrn.create_model("resnet18_switchable").eval()
    seen = []
    model.network.conv1.register_forward_hook(lambda _, args, __: seen.append(tuple(args[0].shape[2:])))
    for size in (40, 32, 20, 12, 5):
        model(torch.rand(1, 3, size, size))
    assert seen == [(32, 32), (32, 32), (24, 24), (12, 12), (8, 8)]


@pytest.mark.parametrize(("fine", "coarse"), [((16, 16), (9, 9)), ((13, 20), (10, 11)), ((8, 8), (7, 32))])
@torch.no_grad()
def test_spectral_convolution_is_the_same_operator_on_every_grid(
    fine: tuple[int, int], coarse: tuple[int, int]
) -> None:
    layer = SpectralConv2d(3, 4, modes=4).double()
    periodic = WhittakerShannon("periodic")
    x = resample(
        torch.randn(2, 3, 7, 7, dtype=torch.float64), fine, periodic
    )  # frequencies up to 3: both grids hold it
    moved_then_mixed = layer(resample(x, coarse, periodic))
    mixed_then_moved = resample(layer(x), coarse, periodic)
    assert torch.allclose(moved_then_mixed, mixed_then_moved, atol=1e-12)


def test_spectral_convolution_uses_the_modes_that_a_small_grid_has() -> None:
    layer = SpectralConv2d(2, 2, modes=8).double()
    x = torch.randn(1, 2, 4, 1, dtype=torch.float64, requires_grad=True)
    assert layer(x).shape == (1, 2, 4, 1)
    assert torch.autograd.gradcheck(layer, (x,))
    with torch.autocast("cpu", torch.bfloat16):
        assert layer.float()(torch.rand(1, 2, 6, 6).bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: arrn.create_model("resnet19"), "did you mean 'resnet18'?"),
        (lambda: arrn.create_model("resnet18", sizes=32), "did you mean 'size'?"),
        (lambda: arrn.create_model("resnet18", num_classes=-1), "num_classes must be 0 or more"),
        (lambda: arrn.create_model("resnet18", in_channels=0), "in_channels 1 or more, got 10 and 0"),
        (lambda: arrn.create_model("resnet18", size=0), "at least 1, got 0"),
        (lambda: arrn.create_model("resnet18").reset_classifier(-2), "0 (features) or more, got -2"),
        (lambda: FixedResolution(nn.Flatten(), 8).reset_classifier(3), "a Flatten without a linear layer"),
        (lambda: arrn.create_model("resnet18")(torch.rand(1, 1, 32, 32)), "expected 3 channels, got 1"),
        (lambda: arrn.create_model("resnet18_switchable", sizes=(8, 16)), "a ladder must decrease: 16 follows 8"),
        (lambda: arrn.create_model("fourier_operator", modes=0), "at least 1 mode, got 0"),
        (
            lambda: arrn.create_model("fourier_operator")(torch.rand(1, 3, 9)),
            "expected shape (batch, 3, height, width)",
        ),
    ],
)
def test_refusals(call, message: str) -> None:
    with pytest.raises(arrn.ArrnError) as caught:
        call()
    assert message in str(caught.value)
