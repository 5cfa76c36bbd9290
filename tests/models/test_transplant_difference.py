"""Transplants in difference form: what they take, how they are chosen, projections fitted to the source."""

import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import arrn
from arrn.models import Transplant
from arrn.models.registry import _builders
from arrn.models.transplanting import libraries
from arrn.nn import LaplacianResidual
from arrn.signal import resample
from arrn.testing import adaptation_discrepancy, assert_exact_skipping, awaken_norms
from sources import Positioned, Resized, Skipping, Unit, plain
from strategies import relative_error


@pytest.mark.parametrize("source", [plain, Skipping, Resized])
def test_what_pads_with_zeros_or_has_positions_is_taken_as_it_is_and_skipped(source) -> None:
    network = source()
    model = arrn.transplant(network, 32, form="difference")
    assert (model.form, {level.form for level in model.levels}) == ("difference", {"difference"})
    assert str(model).count("difference") == len(model.levels)
    assert_exact_skipping(model, tolerance=1e-10)
    kept = {type(m) for m in model.modules()}
    assert {type(m) for m in network.modules()} - kept <= {source, nn.Sequential, nn.ModuleList}
    assert {m.padding_mode for m in model.modules() if isinstance(m, nn.Conv2d)} == {"zeros"}
    own = model.state_dict()
    runs = re.compile(r"^(residuals\.\d+\.block|base|head\.layers)\.")
    weights = {runs.sub("", key): value for key, value in own.items() if runs.match(key)}
    assert all(torch.equal(weights[name], value) for name, value in network.state_dict().items())
    offsets = [value for key, value in own.items() if key.endswith("entering_offset.value")]
    assert len(offsets) == len(model.levels)
    assert not any(value.any() for value in offsets)
    assert model.projection_parameters + arrn.nn.count_parameters(network) == arrn.nn.count_parameters(model)


def test_other_axes_rectangles_discarded_residuals_and_types() -> None:
    audio = nn.Sequential(
        *(m for n in (1, 4, 4) for m in (nn.Conv1d(n, 4, 5, stride=2, padding=2), nn.GroupNorm(2, 4), nn.SiLU())),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 2),
    )  # fmt: skip
    assert_exact_skipping(arrn.transplant(audio, 61, in_channels=2), tolerance=1e-10)
    assert_exact_skipping(arrn.transplant(plain(), (33, 20), form="difference", skip_first=1), tolerance=1e-10)
    model = arrn.transplant(plain().to(torch.bfloat16), 32, form="difference")
    assert {tensor.dtype for name, tensor in model.state_dict().items() if "num_batches" not in name} == {
        torch.bfloat16
    }


def test_dropout_of_values_stays_and_is_shared_in_training() -> None:
    model = arrn.transplant(Skipping(), 32, form="difference").double().train()
    level = model.levels[0]
    assert [m.p for m in level.modules() if type(m) is nn.Dropout] == [0.3]
    with torch.no_grad():
        smooth = level.up(torch.randn(4, 3, 16, 16, dtype=torch.float64))
        assert relative_error(level(smooth), level.skip(smooth)) < 1e-12
    F.cross_entropy(model(torch.randn(8, 3, 32, 32, dtype=torch.float64)), torch.arange(8) % 4).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@torch.no_grad()
def test_fusing_and_casting_keep_the_answer() -> None:
    model = arrn.transplant(plain(), 32, form="difference").double()
    awaken_norms(model, torch.randn(8, 3, 32, 32, dtype=torch.float64))
    model.fit_projections(torch.randn(16, 3, 32, 32))
    x = torch.randn(2, 3, 13, 13, dtype=torch.float64)
    fused = model.at_resolution(13).fuse()
    assert not any(isinstance(module, nn.BatchNorm2d) for module in fused.modules())
    assert relative_error(fused(x), model(x)) < 1e-12


class Flattening(nn.Module):
    """A norm of single samples that is no module."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x.movedim(1, -1), [8]).movedim(-1, 1)


class OwnInstanceNorm(nn.Module):
    """A norm that only its name tells of."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean((2, 3), keepdim=True)) / (x.var((2, 3), keepdim=True) + 1e-6).sqrt()


def with_layer(added: nn.Module, place: int = 3) -> nn.Sequential:
    source = plain()
    source.insert(place, added)
    return source


def after_zeros(added: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 3, 3, padding=1, bias=False), added, *plain())


@pytest.mark.parametrize(
    ("source", "form"),
    [
        (plain(), "paper"),
        (with_layer(nn.GroupNorm(2, 8)), "difference"),
        (with_layer(nn.InstanceNorm2d(8)), "difference"),
        (with_layer(Flattening()), "difference"),
        (with_layer(OwnInstanceNorm()), "difference"),
        (with_layer(nn.GroupNorm(2, 16), place=6), "paper"),  # in the base, which always runs
    ],
)
def test_the_form_follows_from_norms_of_single_samples(source: nn.Module, form: str) -> None:
    model = arrn.transplant(source, 32)
    assert (model.form, model.levels[0].form) == (form, form)


@pytest.mark.parametrize("form", ["paper", "difference"])
def test_a_form_that_is_asked_for_is_taken(form: str) -> None:
    model = arrn.transplant(with_layer(nn.GroupNorm(2, 8)), 32, form=form)
    assert (model.form, model.levels[0].form) == (form, form)


@torch.no_grad()
def test_a_network_of_fixed_resolution_is_taken_out_of_its_wrapper() -> None:
    wrapped = arrn.models.FixedResolution(plain(), 32)
    assert arrn.transplant(wrapped, 32, form="difference").sizes == (32, 16, 8)


@pytest.mark.parametrize(
    ("source", "form", "message", "advice"),
    [
        (Resized(), None, "depends on the position", "; form='difference' takes it"),
        (after_zeros(nn.RReLU()), "difference", "submodule '1' (RReLU) draws", "; form='paper' takes it"),
        (
            with_layer(nn.BatchNorm2d(8, track_running_stats=False)),
            "difference",
            "from 32 to 16 cannot become a residual in form 'difference': submodule '3' (BatchNorm2d) lets",
            "; form='paper' takes it",
        ),
        (after_zeros(Unit()), None, "returns NaN or infinity for an all-zero input", "to build it all the same"),
        (after_zeros(Unit()), "difference", "returns NaN or infinity", "to build it all the same"),
        (Positioned(), "difference", "works at 32 but not at 1056", "ties it to one grid"),
        (plain(), "diference", "unknown form 'diference'", "did you mean 'difference'?"),
    ],
)
def test_errors_name_the_form_that_would_do(source: nn.Module, form: str | None, message: str, advice: str) -> None:
    with pytest.raises(arrn.ArrnError) as caught:
        arrn.transplant(source, 32, form=form)
    assert message in str(caught.value)
    assert advice in str(caught.value)
    assert ("takes it" in advice) == str(caught.value).endswith("takes it")


@pytest.fixture
def images() -> torch.Tensor:
    """Smooth images with some detail and a mean, as photographs have."""
    generator = torch.Generator().manual_seed(3)
    coarse = resample(torch.randn(96, 3, 6, 6, generator=generator), 32)
    return coarse + 0.2 * torch.randn(96, 3, 32, 32, generator=generator) + torch.tensor([0.3, 0, -0.2]).view(3, 1, 1)


@torch.no_grad()
def test_fitted_projections_bring_the_network_near_its_source(images: torch.Tensor) -> None:
    torch.manual_seed(0)
    source = awaken_norms(plain(), images)
    found = {}
    for form in ("paper", "difference"):
        model = arrn.transplant(source, 32, form=form).train()
        stem, base = model.stem.weight.clone(), {n: p.clone() for n, p in model.base.named_parameters()}
        model.eval()
        before = relative_error(model(images[64:]), source(images[64:]))
        model.train()
        left = model.fit_projections([(images[:32], None), (images[32:64], None)])
        assert model.training
        assert model.levels[0].block.training
        assert torch.equal(model.stem.weight, stem)
        assert all(torch.equal(p, base[n]) for n, p in model.base.named_parameters())
        found[form] = before, relative_error(model.eval()(images[64:]), source(images[64:])), left
    assert_exact_skipping(model, tolerance=1e-10)
    before, after, left = found["difference"]
    assert after < 0.4 < 0.6 < before  # 0.25 and 0.69
    assert len(left) == 2
    assert all(0 < value < 0.9 for value in left)
    assert found["paper"][1] > 0.5  # what psi takes away no projection can give back


@torch.no_grad()
def test_what_the_fit_leaves_is_what_it_says(images: torch.Tensor) -> None:
    torch.manual_seed(0)
    source = awaken_norms(plain(), images).double()
    model = arrn.transplant(source, 32, form="difference").eval()
    left = model.fit_projections(images, ridge=0.0)
    level = model.levels[0]
    x = images.double()
    low = level.down(x)
    wanted = level.block(level.up(low))
    constant = model.levels[1].block.get_submodule("entering_offset").value
    given = level.skip(x) + constant.view(-1, 1, 1)
    assert abs(relative_error(given, wanted) - left[0]) < 1e-8
    stray = (given - wanted).movedim(1, 0).flatten(1)  # a least-squares fit leaves what the input cannot tell of
    together = torch.cat([low.movedim(1, 0).flatten(1), torch.ones(1, stray.shape[1], dtype=torch.float64)])
    assert float((stray @ together.T).abs().max()) < 1e-8 * float((wanted.movedim(1, 0).flatten(1) @ together.T).norm())


def test_a_source_that_is_linear_is_found_again() -> None:
    source = nn.Sequential(
        *(m for n in (3, 4, 5) for m in [nn.Conv2d(n, n + 1, 1), nn.AvgPool2d(2)]), nn.Conv2d(6, 4, 1), nn.Flatten()
    ).double()
    model = arrn.transplant(source, 32, form="difference").eval()
    x = resample(torch.randn(64, 3, 4, 4, dtype=torch.float64), 32)
    x = torch.cat([x, torch.randn(64, 3, 1, 1, dtype=torch.float64).expand(-1, -1, 32, 32)])
    model.fit_projections(x[64:], ridge=1e-12)
    assert relative_error(model(x[64:]), source(x[64:])) < 1e-6


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([], "needs images to fit to, got none"),
        (torch.zeros(4, 3, 32, 32, dtype=torch.uint8), "normalised, floating-point numbers, got torch.uint8"),
        ([("a", 1)], "floating-point numbers, got str"),
        (torch.zeros(4, 1, 32, 32), "channels"),
    ],
)
def test_what_cannot_be_fitted_to(images: object, message: str) -> None:
    with pytest.raises(arrn.ArrnError, match=message):
        arrn.transplant(plain(), 32).fit_projections(images)


def test_files_keep_the_form_and_what_was_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, images: torch.Tensor
) -> None:
    monkeypatch.setitem(_builders, "own", lambda form=None: arrn.transplant(plain(), 32, form=form))
    model = arrn.create_model("own", form="difference")
    model.fit_projections(images)
    arrn.save(model, tmp_path)
    loaded = arrn.load(tmp_path)
    assert isinstance(loaded, Transplant)
    assert loaded.form == loaded.config["options"]["form"] == "difference"
    assert torch.equal(loaded(images[:2]), model.eval()(images[:2]))


def test_networks_by_name_stay_in_the_papers_form(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {arrn.models.model_options(name).get("form", "paper") for name in arrn.list_models()} == {"paper"}
    monkeypatch.setattr(libraries, "torchvision_network", lambda *_: with_layer(nn.GroupNorm(2, 8)))
    for given, form in (({}, "paper"), ({"form": "difference"}, "difference")):  # old files give none
        model = arrn.create_model("arrn_resnet18", **given)
        assert model.form == model.levels[0].form == model.config["options"]["form"] == form


@pytest.mark.slow
@torch.no_grad()
def test_convnext_is_exact_in_float32_in_difference_form_alone() -> None:
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(0)
    source = models.convnext_tiny(weights=None, num_classes=10).eval()
    by_itself, paper = arrn.transplant(source, 64), arrn.transplant(source, 64, form="paper")
    assert (by_itself.form, by_itself.sizes) == ("difference", (64, 16, 8, 4))
    assert all(isinstance(level, LaplacianResidual) for level in by_itself.levels)
    for size in (16, 11, 8, 4):
        x = torch.randn(4, 3, size, size)
        assert adaptation_discrepancy(by_itself, x) < 1e-4
    x = torch.randn(4, 3, 8, 8)
    assert adaptation_discrepancy(paper, x) > 1e-2
