"""The paper's seven architectures as ARRNs, by name: sizes, weights, laws, round trips."""

from pathlib import Path

import pytest
import torch
from torch import nn

import arrn
from arrn.models import summarise
from arrn.models.fixed import torchvision_network
from arrn.models.transplanting import TRANSPLANTS
from arrn.nn import check_zero_constant
from arrn.testing import adaptation_discrepancy, awaken_norms
from strategies import relative_error

pytest.importorskip("torchvision")

# Millions of parameters with 10 classes: the ends of each range are the paper's, resnet50's torchvision's own.
PAPER = {
    "resnet18": 11.1,
    "resnet50": 23.5,
    "resnet101": 42.5,
    "wide_resnet50_2": 66.8,
    "wide_resnet101_2": 124.0,
    "mobilenet_v3_small": 1.52,
    "mobilenet_v3_large": 4.21,
}
QUICK = ["resnet18", "mobilenet_v3_small", "mobilenet_v3_large"]
EVERY = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in TRANSPLANTS]


@pytest.mark.parametrize("name", TRANSPLANTS)
def test_costs(name: str) -> None:
    summary = summarise(f"arrn_{name}")
    assert summary.kind == "adaptive"
    assert len(summary.grids) >= 3
    assert summary.source_parameters == pytest.approx(PAPER[name] * 1e6, rel=0.01)
    assert summary.parameters == summary.source_parameters + summary.projection_parameters
    assert 0 < summary.projection_parameters < 0.06 * summary.source_parameters
    assert list(summary.multiply_adds) == sorted(set(summary.multiply_adds), reverse=True)
    assert summary.base_parameters < summary.parameters


@pytest.mark.parametrize("name", EVERY)
def test_trains_evaluates_and_survives_saving(name: str, tmp_path: Path) -> None:
    model = arrn.create_model(f"arrn_{name}", num_classes=5, dropout=0.3).train()
    loss = nn.functional.cross_entropy(model(torch.randn(6, 3, 32, 32)), torch.arange(6) % 5)
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.eval()
    with torch.no_grad():
        for size in (32, 24, 16, 8, 21):
            assert model(torch.randn(1, 3, size, size)).isfinite().all()
        arrn.save(model, tmp_path)
        x = torch.randn(2, 3, 20, 20)
        loaded = arrn.load(tmp_path)
        assert loaded.sizes == model.sizes
        assert torch.equal(loaded(x), model(x))


@pytest.mark.parametrize("name", EVERY)
@torch.no_grad()
def test_the_exact_law_in_both_precisions(name: str) -> None:
    model = arrn.create_model(f"arrn_{name}").double()
    full = torch.randn(8, 3, 32, 32, dtype=torch.float64)
    awaken_norms(model, full)
    for residual in model.levels:
        check_zero_constant(residual.block, residual.in_features, residual.size)
    r = model.stem(full)
    for residual in model.levels:  # what every block is worth to a detailed input
        assert relative_error(residual.skip(r), residual(r)) > 1e-2
        r = residual.skip(r)
    assert relative_error(model.head(model.base(r)), model(full)) > 1e-2
    ran: list[int] = []
    for n, residual in enumerate(model.levels):
        residual.block.register_forward_hook(lambda *_, n=n: ran.append(n))
    inputs = [torch.randn(2, 3, size, size, dtype=torch.float64) for size in (32, 24, 16, 8, 11)]
    for x in inputs:
        assert adaptation_discrepancy(model, x) < 1e-9
        ran.clear()
        model(x)
        assert ran == list(range(model.level(x.shape[-1]), len(model.levels)))
    model.float()
    for x in inputs:
        assert adaptation_discrepancy(model, x.float()) < 1e-2


@pytest.mark.parametrize("name", EVERY)
def test_weights_are_the_sources(name: str) -> None:
    torch.manual_seed(1)
    source = torchvision_network(name, 10, 3).state_dict()
    torch.manual_seed(1)
    model = arrn.create_model(f"arrn_{name}")
    prefixes = [*(f"residuals.{n}.block." for n in range(len(model.levels))), "base.", "head.layers."]
    kept = {
        key.removeprefix(prefix): value
        for key, value in model.state_dict().items()
        for prefix in prefixes
        if key.startswith(prefix)
    }
    assert all(torch.equal(value, source[key]) for key, value in kept.items())
    assert len(kept) == len(model.state_dict()) - 1 - len(model.levels)
    if TRANSPLANTS[name] == 0:
        assert set(kept) == set(source)


def test_ladders() -> None:
    assert summarise("arrn_resnet50").grids == tuple((n, n) for n in (32, 16, 8, 4, 2))
    assert summarise("arrn_mobilenet_v3_small").grids == tuple((n, n) for n in (32, 16, 8))
    with torch.device("meta"):
        assert arrn.create_model("arrn_mobilenet_v3_large", skip_first=0).sizes == (32, 16, 8, 4, 2)
        assert arrn.create_model("arrn_resnet18", size=(96, 64)).sizes[-1] == (6, 4)


def test_channels_and_classes(tmp_path: Path) -> None:
    model = arrn.create_model("arrn_resnet18", in_channels=1, num_classes=0, kernel="fair", policy="cheap").eval()
    x = torch.rand(2, 1, 16, 16)
    assert model.level(20) == 1
    assert model(x).shape == (2, 512)
    model.reset_classifier(7)
    arrn.save(model, tmp_path)
    assert torch.equal(arrn.load(tmp_path)(x), model(x))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 16}, "size 16 is too small for this architecture, whose grids would be 16 -> 8 -> 4 -> 2 -> 1"),
        ({"num_classes": -1}, "num_classes must be 0 or more"),
        ({"in_channels": 0}, "in_channels 1 or more"),
        ({"sizes": (32, 16)}, "did you mean 'size'?"),
        ({"skip_first": 4}, "from 0 to 3"),
    ],
)
def test_refusals(options: dict[str, object], message: str) -> None:
    with torch.device("meta"), pytest.raises(arrn.ArrnError) as caught:
        arrn.create_model("arrn_resnet18", **options)
    assert message in str(caught.value)
