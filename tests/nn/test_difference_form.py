"""The difference form, and the gated form where both obey one law: exact skipping for blocks that the paper's form
refuses, of every shape, on every grid."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import arrn
from arrn.nn import (
    ARRN,
    DenseBlock,
    Head,
    InvertedBlock,
    LaplacianResidual,
    Projection,
    ResidualBase,
    ResidualStack,
    ZeroPreservingBlock,
    check_zero_constant,
    multiply_adds,
)
from arrn.nn.layers import CONVOLUTIONS
from arrn.signal import resample
from arrn.testing import assert_exact_skipping, awaken_norms
from strategies import LARGEST, PERFECT, relative_error

NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
POOLS = {1: nn.AdaptiveAvgPool1d, 2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}
Grid = tuple[int, ...]


class Positions(nn.Module):
    def __init__(self, features: int, grid: Grid) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(1, features, *grid))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.embedding


class SqueezeExcitation(nn.Module):
    def __init__(self, features: int, ndim: int) -> None:
        super().__init__()
        self.weigh = nn.Sequential(POOLS[ndim](1), CONVOLUTIONS[ndim](features, features, 1), nn.Sigmoid())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weigh(x)


class ConvNeXtLike(nn.Module):
    """A depthwise convolution, a layer norm over channels, two linear layers, a layer scale; added to the input."""

    def __init__(self, features: int, ndim: int, mode: str = "zeros") -> None:
        super().__init__()
        self.mix = CONVOLUTIONS[ndim](features, features, 3, padding=1, groups=features, padding_mode=mode)
        self.norm = nn.LayerNorm(features)
        self.expand, self.contract = nn.Linear(features, 2 * features), nn.Linear(2 * features, features)
        self.scale = nn.Parameter(torch.full((features,), 1e-6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.mix(x).movedim(1, -1))
        return x + (self.scale * self.contract(F.gelu(self.expand(y)))).movedim(-1, 1)


def body(flaw: str, features: int, grid: Grid) -> nn.Module:
    """A block that keeps channels and grid, and whose answer to a zero input varies over space."""
    ndim = len(grid)
    convolution = CONVOLUTIONS[ndim]
    zero_padded, first = convolution(features, features, 3, padding=1), convolution(features, features, 1)
    if flaw == "zero padding":
        return nn.Sequential(
            zero_padded, NORMS[ndim](features), nn.ReLU(), convolution(features, features, 3, padding=1)
        )
    if flaw == "positions":
        return nn.Sequential(Positions(features, grid), nn.SiLU(), convolution(features, features, 1))
    if flaw == "squeeze-excitation":
        return nn.Sequential(first, SqueezeExcitation(features, ndim), zero_padded)
    if flaw == "layer norm":
        return nn.Sequential(zero_padded, nn.LayerNorm([features, *grid]), nn.SiLU())
    if flaw == "ConvNeXt":
        return nn.Sequential(first, ConvNeXtLike(features, ndim))
    return ResidualStack(DenseBlock(features, 0.5, 2, ndim), DenseBlock(features, 1.5, 3, ndim, activation=nn.SiLU))


FLAWS = ["zero padding", "positions", "squeeze-excitation", "layer norm", "ConvNeXt", "dense"]


@st.composite
def levels(draw: st.DrawFn, ndim: int, size: Grid, features: int, kernel: arrn.signal.Kernel) -> LaplacianResidual:
    """A level of any shape, its block with any flaw, from that grid to a lower one."""
    block = body(draw(st.sampled_from(FLAWS)), features, size)
    shape = draw(st.sampled_from(["plain", "widening", "strided"]))
    form = draw(st.sampled_from(["difference", "gated"]))
    out_features, options = draw(st.integers(3, 6)), {"bracket_norm": form == "difference" and draw(st.booleans())}
    if shape == "strided":
        next_size = tuple((n + 1) // 2 for n in size)
        block = nn.Sequential(block, CONVOLUTIONS[ndim](features, out_features, 3, 2, 1))
    else:
        next_size = tuple(draw(st.integers(3 if axis == 0 else 1, max(n - 2, 1))) for axis, n in enumerate(size))
        options["hand_down"] = draw(st.sampled_from(["kernel", "poor", "fair"]))
        if shape == "widening":
            block = nn.Sequential(block, CONVOLUTIONS[ndim](features, out_features, 1))
    return LaplacianResidual(block, features, out_features, size, next_size, kernel, form=form, **options)


@dataclass(frozen=True)
class Drawn:
    model: ARRN
    size: Grid
    larger: Grid


@st.composite
def networks(draw: st.DrawFn, dtype: torch.dtype) -> Drawn:
    """One or two levels in difference or gated form, a size for its inputs, and one that is larger on every axis."""
    ndim = draw(st.integers(1, 3))
    torch.manual_seed(draw(st.integers(0, 2**16)))
    kernel = draw(st.sampled_from(PERFECT))
    size = tuple(draw(st.integers(6 if axis == 0 else 3, LARGEST[ndim])) for axis in range(ndim))
    residuals = [draw(levels(ndim, size, 4, kernel))]
    if residuals[0].next_size[0] >= 6:
        residuals.append(draw(levels(ndim, residuals[0].next_size, residuals[0].out_features, kernel)))
    features, base = residuals[-1].out_features, residuals[-1].next_size
    model = ARRN(Projection(2, 4), residuals, ResidualBase(DenseBlock(features, ndim=ndim)), Head(features, 5))
    model.to(dtype)
    awaken_norms(model, torch.randn(6, 2, *size, dtype=dtype))
    bound = draw(st.sampled_from([residual.next_size for residual in residuals]))
    small = tuple(draw(st.integers(max(1, n // 2), n)) for n in (base if draw(st.booleans()) else bound))
    return Drawn(model, small, tuple(n + draw(st.integers(1, 9)) for n in small))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_skipping_is_exact_whatever_the_block(dtype: torch.dtype, tolerance: float) -> None:
    @settings(max_examples=40)
    @given(networks(dtype))
    @torch.no_grad()
    def law(drawn: Drawn) -> None:
        model, x = drawn.model, torch.randn(2, 2, *drawn.size, dtype=dtype)
        called: list[int] = []
        for n, residual in enumerate(model.levels):
            residual.block.register_forward_hook(lambda *_, n=n: called.append(n))
        adapted = model(x)
        assert called == list(range(model.level(drawn.size), len(model.levels)))
        assert relative_error(adapted, model(x, adapt=False)) < tolerance
        assert relative_error(model.at_resolution(drawn.size)(x), adapted) < tolerance
        assert relative_error(model(resample(x, drawn.larger, model.kernel)), adapted) < tolerance

    law()


@pytest.mark.parametrize("flaw", FLAWS)
def test_blocks_that_the_papers_form_refuses_matter_and_are_skipped(flaw: str) -> None:
    block = body(flaw, 4, (9, 8))
    with pytest.raises(arrn.ConstancyError):
        LaplacianResidual(block, 4, 6, (9, 8), (5, 4))
    for form in ("difference", "gated"):
        assert_exact_skipping(LaplacianResidual(block, 4, 6, (9, 8), (5, 4), form=form))


class ChannelNorm(nn.LayerNorm):
    """A layer norm over channels, as stands before each of ConvNeXt's stages."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


@torch.no_grad()
def test_layer_norms_are_exact_in_float32_where_the_papers_form_is_off_by_order_one() -> None:
    """Without biases, as ConvNeXt begins, each norm makes the noise of an empty band up to a thousand times larger."""
    found = {}
    for form in ("paper", "difference", "gated"):
        torch.manual_seed(0)
        block = nn.Sequential(*(layer for _ in range(2) for layer in (ChannelNorm(8), ConvNeXtLike(8, 2, "replicate"))))
        for module in block.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = 1e-6
            elif isinstance(module, ConvNeXtLike):
                module.scale.fill_(1)
            if getattr(module, "bias", None) is not None:
                module.bias.zero_()
        residual = LaplacianResidual(block, 8, 8, 16, 9, form=form).eval()
        smooth = residual.up(torch.randn(8, 8, 9, 9))
        found[form] = relative_error(residual(smooth), residual.skip(smooth))
    assert found["paper"] > 0.1
    assert found["difference"] < 1e-5
    assert found["gated"] < 1e-5


class FunctionalDropout(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout2d(F.dropout(x, 0.4, self.training), 0.3, self.training, inplace=True)


class DropPath(nn.Module):
    """Stochastic depth as timm draws it, and as others do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return x
        shape = (x.shape[0], *[1] * (x.ndim - 1))
        kept = x.new_empty(shape).bernoulli_(0.7) / 0.7
        return x * kept * (torch.rand(shape, dtype=x.dtype) + 0.5).floor() / 0.5


def sharing_blocks() -> dict[str, nn.Module]:
    stochastic_depth = pytest.importorskip("torchvision.ops").StochasticDepth
    layers = {
        "values": nn.Dropout(0.5),
        "channels": nn.Dropout2d(0.5),
        "functions": FunctionalDropout(),
        "rows": stochastic_depth(0.5, "row"),
        "batches": stochastic_depth(0.5, "batch"),
        "paths": DropPath(),
    }
    return {
        name: nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), layer, nn.Conv2d(8, 4, 1)) for name, layer in layers.items()
    }


@torch.no_grad()
def test_what_is_drawn_is_shared_so_that_nothing_is_contributed_in_training_either() -> None:
    for name, block in sharing_blocks().items():
        residual = LaplacianResidual(block, 4, 5, 8, 5, form="difference").double().train()
        r = torch.randn(6, 4, 8, 8, dtype=torch.float64)
        smooth = residual.up(residual.down(r))
        assert relative_error(residual(smooth), residual.skip(smooth)) < 1e-12, name
        assert len({float(residual(r).sum()) for _ in range(16)}) > 1, f"{name}: masks are drawn anew"


def test_shared_masks_keep_the_share_that_they_should() -> None:
    for layer in (nn.Dropout(0.3), nn.Dropout2d(0.3), nn.Dropout2d(1.0)):
        block = nn.Sequential(nn.Identity(), layer)
        residual = LaplacianResidual(block, 4, 4, 6, 3, form="difference").train()
        given: list[torch.Tensor] = []
        layer.register_forward_hook(lambda _, inputs, output, given=given: given.append(output / inputs[0]))
        residual(torch.randn(400, 4, 6, 6))
        first, second = given[-1].chunk(2)
        torch.testing.assert_close(first, second)
        kept = 1 - layer.p
        assert abs(float((first > 0).float().mean()) - kept) < 0.03
        assert not kept or abs(float(first.max()) - 1 / kept) < 1e-5


class RandomAlways(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5, training=True)


class Company(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(dim=0, keepdim=True)


class Place(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.arange(1, 1 + len(x), dtype=x.dtype).view(-1, 1, 1, 1)


class Unit(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / x.abs().amax(dim=(1, 2, 3), keepdim=True)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.RReLU(), "draws random numbers that the two calls"),
        (nn.AlphaDropout(0.5), "draws random numbers that the two calls"),
        (RandomAlways(), "to chance in evaluation mode"),
        (nn.BatchNorm2d(4, track_running_stats=False), r"other samples .* track_running_stats=True"),
        (Company(), "depend on the other samples in evaluation mode"),
        (Place(), "in another place of the batch"),
        (Unit(), "returns NaN or infinity"),
    ],
)
def test_what_could_not_be_skipped_is_refused_by_name(layer: nn.Module, message: str) -> None:
    block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.Sequential(layer), nn.Conv2d(4, 4, 1))
    state = torch.get_rng_state()
    with pytest.raises(arrn.ArrnError, match=rf"submodule '1.0' \({type(layer).__name__}\) .*{message}"):
        LaplacianResidual(block, 4, 4, 8, 4, form="difference")
    assert torch.equal(torch.get_rng_state(), state)
    LaplacianResidual(block, 4, 4, 8, 4, form="difference", check=False)


class Watched(nn.Module):
    """Notes what it is called with."""

    def __init__(self, context: bool = False) -> None:
        super().__init__()
        self.mix = nn.Conv2d(4, 4, 3, padding=1)
        self.takes_context = context
        self.calls: list[tuple[torch.Tensor, ...]] = []

    def forward(self, *signals: torch.Tensor) -> torch.Tensor:
        self.calls.append(signals)
        return torch.stack([self.mix(x) for x in signals]).prod(dim=0)


@torch.no_grad()
def test_both_halves_go_through_the_block_in_one_call_with_the_same_context() -> None:
    block = Watched(context=True)
    residual = LaplacianResidual(block, 4, 4, 8, 4, form="difference", check=False).double()
    r = torch.randn(5, 4, 8, 8, dtype=torch.float64)
    smooth = residual.up(residual.down(r))
    for survivors, count in ((None, 5), (3, 3), (0, 0)):
        block.calls.clear()
        answer = residual(r, survivors)
        assert len(block.calls) == (count > 0)
        for x, context in block.calls:
            torch.testing.assert_close(x, torch.cat([r[:count], smooth[:count]]))
            torch.testing.assert_close(context, torch.cat([smooth[:count], smooth[:count]]))
        torch.testing.assert_close(answer[count:], residual.skip(r)[count:])
    block.calls.clear()
    gate = torch.tensor([True, False, True, False, False])
    gated = residual(r, gate)
    torch.testing.assert_close(gated[~gate], residual.skip(r)[~gate])
    torch.testing.assert_close(gated[gate], residual(r)[gate])
    torch.testing.assert_close(block.calls[0][0][:5][~gate], smooth[~gate])


@torch.no_grad()
def test_answers_are_subtracted_in_float32() -> None:
    given: list[torch.Tensor] = []
    block = nn.Conv2d(4, 4, 1)
    residual = LaplacianResidual(block, 4, 4, 8, 4, form="difference", bracket_norm=True)
    residual.bracket_norm.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    x = torch.randn(3, 4, 8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        residual(x)
    residual.bfloat16()(x.bfloat16())
    residual.double()(x.double())
    assert [bracket.dtype for bracket in given] == [torch.float32, torch.float32, torch.float64]


@torch.no_grad()
def test_the_brackets_norm_brings_it_to_size_one() -> None:
    model = arrn.create_model(
        "arrn", sizes=(9, 7), features=(4, 6), block="dense", form="difference", bracket_norm=True
    )
    model.double().train()
    given: list[torch.Tensor] = []
    model.levels[0].bracket_norm.register_forward_hook(lambda _, inputs, output: given.extend([*inputs, output]))
    model(torch.randn(16, 3, 9, 9, dtype=torch.float64))
    before, after = (bracket.square().mean(dim=(0, 2, 3)).sqrt() for bracket in given)
    assert float((before - 1).abs().max()) > 0.1
    torch.testing.assert_close(after, torch.ones_like(after), rtol=1e-2, atol=0)
    assert_exact_skipping(model)


def space_to_depth(features: int, out_features: int) -> nn.Module:
    return nn.Sequential(nn.PixelUnshuffle(2), nn.Conv2d(4 * features, out_features, 1, bias=False))


@pytest.mark.parametrize("form", ["paper", "difference", "gated"])
@pytest.mark.parametrize(
    "way",
    [
        "poor",
        arrn.signal.KaiserSinc(3, 5.0),
        nn.Conv2d(4, 4, 3, stride=2, padding=1, bias=False),
        nn.Conv2d(4, 6, 3, stride=2, padding=1, bias=False),
        space_to_depth(4, 6),
    ],
    ids=["poor", "instance", "strided", "strided and widening", "space to depth"],
)
def test_what_hands_the_contribution_down_may_leak(way: object, form: str) -> None:
    block = InvertedBlock(4, 2, 1)
    residual = LaplacianResidual(block, 4, 6, (8, 10), (4, 5), form=form, hand_down=way)
    assert_exact_skipping(residual, tolerance=1e-12)
    assert "handed down by" in residual.extra_repr()
    plain = LaplacianResidual(block, 4, 6, (8, 10), (4, 5), form=form)
    plain.projection.load_state_dict(residual.projection.state_dict())
    x = torch.randn(2, 4, 8, 10)
    assert relative_error(residual.eval()(x), plain.eval()(x)) > 1e-3


class SampleNorm(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(x / x.norm(dim=1, keepdim=True).clamp_min(1e-12), 2)


@pytest.mark.parametrize(
    ("way", "message"),
    [
        (
            nn.Conv2d(4, 4, 2, stride=2),
            r"hand_down \(Conv2d\) returns values of up to .* for an all-zero input .* no bias",
        ),
        (nn.Conv2d(4, 4, 3, padding=1, bias=False), r"takes 8 to 8, but the next grid is 4"),
        (
            nn.Conv2d(4, 5, 2, stride=2, bias=False),
            r"the output of hand_down has 5 channels; it must give in_features=4",
        ),
        (SampleNorm(), "returns 1 times as much for a signal that is scaled by a millionth"),
        ("pour", r"unknown kernel 'pour'; did you mean 'poor'"),
    ],
)
def test_what_does_not_keep_zero_is_not_handed_down_by(way: object, message: str) -> None:
    with pytest.raises(arrn.ArrnError, match=message):
        LaplacianResidual(InvertedBlock(4, 2, 1), 4, 6, 8, 4, hand_down=way)


def test_options_of_the_other_form_are_refused() -> None:
    block = InvertedBlock(4, 2, 1)
    strided = nn.Conv2d(4, 4, 3, 2, 1, padding_mode="replicate")
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: LaplacianResidual(block, 4, 4, 8, 4, form="diference"), "unknown form 'diference'; did you mean"),
        (lambda: LaplacianResidual(block, 4, 4, 8, 4, form="difference", psi=True), "psi=True is of the paper's form"),
        (lambda: LaplacianResidual(block, 4, 4, 8, 4, bracket_norm=True), "bracket_norm=True needs form='difference'"),
        (lambda: LaplacianResidual(strided, 4, 4, 8, 4, hand_down="poor"), "nothing to hand down"),
        (lambda: arrn.create_model("arrn", block="dense"), "pads with zeros"),
        (lambda: arrn.create_model("arrn", base_block="zero_preserving"), "unknown base_block 'zero_preserving'"),
        (
            lambda: arrn.create_model("arrn", sizes=(9, 4), features=(4, 6), hand_down="strided"),
            "each is a multiple of the next, got 9 and 4",
        ),
    ]
    for call, message in refused:
        with pytest.raises(arrn.ArrnError, match=message):
            call()


def test_the_block_is_counted_twice() -> None:
    block = DenseBlock(8, 1.5)
    paper, difference = (
        LaplacianResidual(block, 8, 12, 16, 8, form=form, check=False) for form in ("paper", "difference")
    )
    shape = (1, 8, 16, 16)
    assert multiply_adds(difference, shape) - multiply_adds(paper, shape) == multiply_adds(block, shape)


def test_dense_blocks_keep_what_they_say() -> None:
    for ndim in (1, 2, 3):
        block = DenseBlock(4, expansion=2, depth=3, ndim=ndim, dropout=0.1)
        assert [p.shape[:2] for p in block.parameters() if p.ndim > 1] == [(8, 4), (8, 8), (4, 8)]
        assert block(torch.randn(2, 4, *[5] * ndim)).shape == (2, 4, *[5] * ndim)
        with pytest.raises(arrn.ConstancyError):
            check_zero_constant(DenseBlock(4, 2, 3, ndim), 4, 6)


@torch.no_grad()
def test_networks_are_built_shown_fused_and_steered_by_context() -> None:
    for block in (DenseBlock(4), ZeroPreservingBlock(4, 2, 1)):
        model = ARRN(
            Projection(3, 4),
            [LaplacianResidual(block, 4, 6, 12, 7, form="difference")],
            ResidualBase(DenseBlock(6)),
            Head(6, 5),
            blockless=[9, 5],
            dropout=0.5,
        ).double()
        assert_exact_skipping(model)
        assert "difference" in repr(model)
        assert "difference form" in repr(model.levels[0])
        awaken_norms(model, torch.randn(8, 3, 12, 12, dtype=torch.float64))
        x = torch.randn(2, 3, 10, 10, dtype=torch.float64)
        assert relative_error(model.at_resolution(10).fuse()(x), model(x)) < 1e-12
        model.train()(torch.randn(8, 3, 12, 12, dtype=torch.float64))


def test_files_say_the_form_and_older_ones_mean_the_papers(tmp_path: Path) -> None:
    options = {"sizes": (8, 4), "features": (4, 6), "depth": 1, "expansion": 2, "num_classes": 3}
    for form in ("difference", "paper"):
        model = arrn.create_model("arrn", **options, form=form, hand_down="poor").eval()
        arrn.save(model, tmp_path / form)
        x = torch.randn(2, 3, 8, 8)
        loaded = arrn.load(tmp_path / form)
        assert torch.equal(loaded(x), model(x))
        assert {level.form for level in loaded.levels} == {form}
    arrn.save(arrn.create_model("arrn", **options), tmp_path)
    path = tmp_path / "config.json"
    document = json.loads(path.read_text())
    for option in ("form", "hand_down", "bracket_norm", "base_block"):
        del document["model"]["options"][option]
    path.write_text(json.dumps(document))
    assert {level.form for level in arrn.load(tmp_path).levels} == {"paper"}


@pytest.mark.parametrize("name", ["arrn_small", "arrn_audio_small"])
def test_designs_take_the_form(name: str) -> None:
    model = arrn.create_model(name, form="difference", block="dense", hand_down="poor", dropout=0.0)
    assert {level.form for level in model.levels} == {"difference"}
    top = model.grids[0]
    with torch.no_grad():
        x = torch.randn(1, model.in_channels, *(n // 4 for n in top))
        assert relative_error(model.eval()(x), model(x, adapt=False)) < 1e-4
