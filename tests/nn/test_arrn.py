"""The network as users see it: readout, features, printing, precision, and refusals."""

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import nn

import arrn
from arrn.nn import (
    ARRN,
    Backbone,
    Head,
    InvertedBlock,
    LaplacianDropout,
    LaplacianResidual,
    Projection,
    Resampling,
    ResidualBase,
    count_parameters,
    multiply_adds,
)
from arrn.nn.introspection import forward_memory
from arrn.signal import WhittakerShannon, resample
from arrn.testing import awaken_norms
from strategies import relative_error


def small(**options: object) -> ARRN:
    if options.get("block") == "dense":
        options["form"] = "difference"
    return arrn.create_model(
        "arrn", **{"sizes": (12, 8, 5), "features": (4, 6, 8), "depth": 2, "expansion": 2, "num_classes": 5} | options
    )


@pytest.mark.parametrize("kernel", ["perfect", "fair", "poor"])
@pytest.mark.parametrize("block", ["inverted", "zero_preserving", "dense"])
@torch.no_grad()
def test_logits_depend_on_every_block(kernel: str, block: str) -> None:
    model = small(kernel=kernel, block=block).double()
    x = torch.randn(8, 3, 12, 12, dtype=torch.float64)
    awaken_norms(model, x)
    before = model(x)
    for part in (*(residual.block for residual in model.levels), model.base.block):
        changed = copy.deepcopy(part.state_dict())
        for parameter in part.parameters():
            parameter.mul_(1.3)
        assert relative_error(model(x), before) > 1e-3
        part.load_state_dict(changed)
    assert torch.equal(model(x), before)


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("block", ["inverted", "zero_preserving", "dense"])
def test_every_parameter_receives_a_gradient(ndim: int, block: str, device: torch.device) -> None:
    model = small(ndim=ndim, block=block).to(device, torch.float64).train()
    x = torch.randn(4, 3, *[12] * ndim, dtype=torch.float64, device=device)
    target = torch.arange(4, device=device)
    nn.functional.cross_entropy(model(x), target).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().max()) > 1e-12, name


def test_gradcheck_through_every_form_of_residual() -> None:
    blocks = [
        InvertedBlock(2, 1.5, 1),
        nn.Sequential(InvertedBlock(2, 1.5, 1), nn.Conv2d(2, 3, 1)),
        nn.Conv2d(2, 3, 3, stride=2, padding=1, padding_mode="replicate"),
    ]
    x = torch.randn(2, 2, 5, 5, dtype=torch.float64, requires_grad=True)
    for block, form in itertools.product(blocks, ["paper", "difference"]):
        residual = LaplacianResidual(block, 2, 3, 5, 3, form=form).double()
        awaken_norms(residual, x)
        parameters = list(residual.parameters())

        def call(x: torch.Tensor, *_: torch.Tensor, residual: LaplacianResidual = residual) -> torch.Tensor:
            return residual(x)

        assert torch.autograd.gradcheck(call, (x, *parameters))


def test_features_of_every_level() -> None:
    model = small().eval()
    x = torch.rand(2, 3, 12, 12)
    shapes = [tuple(features.shape[1:]) for features in model.forward_levels(x)]
    assert shapes == [(4, 12, 12), (6, 8, 8), (8, 5, 5)]
    assert [f.shape[-1] for f in model.forward_levels(torch.rand(2, 3, 7, 7))] == [12, 8, 5]
    assert [f.shape[-1] for f in model.forward_levels(x, indices=(0, 2))] == [12, 5]
    features = model.forward_features(x)
    assert torch.equal(features, model.forward_levels(x)[-1])
    assert torch.allclose(model.head(features), model(x))
    assert torch.allclose(model.at_resolution(12).forward_features(x), features, atol=1e-6)


def test_no_classes_returns_features() -> None:
    model = small(num_classes=0).eval()
    x = torch.rand(2, 3, 9, 9)
    assert model(x).shape == (2, 8)
    assert torch.allclose(model(x), model.forward_features(x).mean(dim=(2, 3)))


def test_reset_classifier(device: torch.device) -> None:
    model = small().to(device, torch.float64)
    model.reset_classifier(7)
    assert model(torch.rand(2, 3, 9, 9, dtype=torch.float64, device=device)).shape == (2, 7)
    assert model.num_classes == 7
    model.reset_classifier(0)
    assert model(torch.rand(2, 3, 9, 9, dtype=torch.float64, device=device)).shape == (2, 8)
    with pytest.raises(arrn.ArrnError, match=r"num_classes must be 0 .* got -1"):
        model.reset_classifier(-1)


def test_printed_network_shows_the_ladder() -> None:
    text = repr(small(dropout=(0.6, 0.3), kernel=WhittakerShannon("periodic")))
    lines = text.splitlines()
    assert lines[0] == "ARRN 12 -> 8 -> 5, policy exact, stratified draw"
    assert [line.split()[0] for line in lines[1:]] == ["stem", "residual", "residual", "base", "head", "total"]
    assert " ".join(lines[2].split()).startswith("residual 12 -> 8, 4 -> 6 features, perfect/periodic, p=0.6 Inverted")
    assert f"{count_parameters(small()):,} parameters" in lines[-1]
    assert str(small().residuals[0]).splitlines()[1].strip() == ("12 -> 8, 4 -> 6 features, perfect/symmetric, plain")
    assert "16x12 -> 8x7" in repr(small(sizes=((16, 12), (8, 7)), features=(4, 6)))


def test_what_was_cast_to_a_size_and_backbones_are_printed_as_ladders_too() -> None:
    model = small(dropout=(0.6, 0.3))
    lines = [" ".join(line.split()) for line in repr(model.at_resolution((7, 3))).splitlines()]
    assert lines[0] == "AdaptedARRN for inputs of 7x3, which enter on 8"
    assert lines[1].startswith("entry 8, 3 -> 6 features")
    assert lines[2].startswith("residual 8 -> 5, 6 -> 8 features, perfect/symmetric, p=0.3 InvertedBlock")
    assert [line.split()[0] for line in lines[3:]] == ["base", "head", "total"]
    assert repr(model.at_resolution(2)).splitlines()[1].split()[:3] == ["entry", "5,", "3"]
    lines = [" ".join(line.split()) for line in repr(Backbone(model, (0, -1))).splitlines()]
    assert lines[0] == "Backbone 12 -> 8 -> 5, policy exact, stratified draw"
    assert lines[-3:-1] == ["map 0 12, 4 features of residuals.0", "map 2 5, 8 features of base"]
    assert repr(ARRN(model.stem, model.levels, model.base, nn.Identity())).splitlines()[-2].split()[:4] == [
        *("head", "8", "features", "Identity")
    ]


def test_a_notebook_shows_a_table_that_nothing_can_break() -> None:
    class Evil(nn.Identity):
        pass

    Evil.__name__ = "<script>alert(1)</script>"
    model = small()
    model.head = Evil()
    for shown in (model, Backbone(model), model.at_resolution(8)):
        page = shown._repr_html_()
        assert "<script>" not in page
        assert page.count("<tr>") == len(repr(shown).splitlines())
        for part in ("<svg", "8 -&gt; 5", "6 -&gt; 8 features"):
            assert part in page
    assert "&lt;script&gt;" in model._repr_html_()


def test_sizes_are_what_the_user_gave() -> None:
    assert small().sizes == (12, 8, 5)
    assert small(sizes=((12, 10), (6, 10)), features=(4, 6)).sizes == ((12, 10), (6, 10))


def test_state_dict_holds_no_matrices() -> None:
    assert not [name for name in small().state_dict() if "matrix" in name]


def test_matrices_are_cast_from_their_float64_master() -> None:
    fresh = Resampling((9,), (5,), WhittakerShannon())
    expected = WhittakerShannon().matrix(9, 5)
    assert torch.equal(fresh.matrix0, expected.float())
    worn = copy.deepcopy(fresh).half().bfloat16().float()
    assert torch.equal(worn.matrix0, expected.float())
    assert torch.equal(worn.double().matrix0, expected)
    assert torch.equal(fresh.to("meta").to_empty(device="cpu").matrix0, expected.float())


def test_building_without_memory() -> None:
    with torch.device("meta"):
        bare = small(num_classes=4)
    assert all(parameter.is_meta for parameter in bare.parameters())
    model = small(num_classes=4).eval()
    filled = bare.to_empty(device="cpu").eval()
    filled.load_state_dict(model.state_dict())
    x = torch.rand(2, 3, 9, 9)
    assert torch.equal(filled(x), model(x))


def test_deep_copy_is_independent() -> None:
    model = small().eval()
    x = torch.rand(2, 3, 9, 9)
    twin = copy.deepcopy(model)
    assert torch.equal(twin(x), model(x))
    with torch.no_grad():
        twin.stem.weight.zero_()
    assert not torch.equal(twin(x), model(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype, device: torch.device) -> None:
    model = small()
    awaken_norms(model, torch.randn(8, 3, 12, 12))
    x = torch.randn(2, 3, 8, 8)
    expected = model(x)
    assert relative_error(model.to(device, dtype)(x.to(device, dtype)).cpu().float(), expected) < 5e-2


@pytest.mark.parametrize("draw", ["sample", "stratified", "batch"])
@pytest.mark.parametrize("block", ["inverted", "zero_preserving", "dense"])
def test_autocast_trains(draw: str, block: str, device: torch.device) -> None:
    model = small(dropout=0.4, draw=draw, block=block).to(device).train()
    x = torch.randn(8, 3, 12, 12, device=device)
    with torch.autocast(device.type, torch.bfloat16):
        loss = model(x).float().square().mean()
    loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    assert model.stem.weight.grad is not None


def test_autocast_is_close_to_float32(device: torch.device) -> None:
    model = small().to(device)
    x = torch.randn(8, 3, 12, 12, device=device)
    awaken_norms(model, x)
    expected = model(x)
    with torch.autocast(device.type, torch.bfloat16):
        assert relative_error(model(x).float(), expected) < 5e-2


@pytest.mark.parametrize(("ndim", "memory_format"), [(2, torch.channels_last), (3, torch.channels_last_3d)])
def test_channels_last_in_and_out(ndim: int, memory_format: torch.memory_format, device: torch.device) -> None:
    model = small(ndim=ndim).to(device)
    x = torch.randn(4, 3, *[12] * ndim, device=device)
    awaken_norms(model, x)
    expected = model.forward_features(x)
    model = model.to(memory_format=memory_format)
    features = model.forward_features(x.to(memory_format=memory_format))
    assert relative_error(features, expected) < 1e-4
    if ndim == 3 and device.type == "cpu" and torch.get_num_threads() == 1:
        return  # there torch's own convolution answers in another order
    assert features.is_contiguous(memory_format=memory_format)
    lower = resample(x, 8).contiguous(memory_format=memory_format)
    assert model.forward_features(lower).is_contiguous(memory_format=memory_format)


def test_multiply_adds_are_those_of_the_arithmetic() -> None:
    model = small(sizes=(8, 4), features=(4, 6), depth=1)
    pixels, low = 64, 16
    stem = 3 * 4 * pixels
    block = (4 * 8 + 8 * 9 + 8 * 4) * pixels
    down = 4 * (4 * 8 * 8 + 4 * 8 * 4)  # rows, then columns
    up = 4 * (8 * 4 * 4 + 8 * 4 * 8)
    residual = block + 2 * down + up + 4 * 6 * low
    base = (6 * 12 + 12 * 9 + 12 * 6) * low
    assert multiply_adds(model.at_resolution(8), (1, 3, 8, 8)) == stem + residual + base + 6 * 5
    assert multiply_adds(model.at_resolution(4), (1, 3, 4, 4)) == 3 * 6 * low + base + 6 * 5


def test_multiply_adds_fall_with_the_resolution() -> None:
    model = small()
    costs = [multiply_adds(model.at_resolution(size), (1, 3, size, size)) for size in model.sizes]
    assert costs == sorted(costs, reverse=True)
    assert len(set(costs)) == len(costs)


def residual(
    in_features: int = 4, out_features: int = 6, size: int = 8, next_size: int = 4, **o: object
) -> LaplacianResidual:
    return LaplacianResidual(InvertedBlock(in_features, 2, 1), in_features, out_features, size, next_size, **o)


def assemble(*residuals: LaplacianResidual, stem: int = 4, **options: object) -> ARRN:
    return ARRN(Projection(3, stem), residuals, ResidualBase(InvertedBlock(6)), Head(6, 5), **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: small()(torch.rand(3, 12, 12)), "expected shape (batch, 3, height, width), got (3, 12, 12)"),
        (lambda: small(ndim=1)(torch.rand(1, 3, 12, 12)), "expected shape (batch, 3, length), got (1, 3, 12, 12)"),
        (lambda: small()(torch.rand(1, 1, 12, 12)), "expected 3 channels, got 1"),
        (lambda: small()(torch.rand(1, 3, 0, 12)), "at least 1 sample"),
        (lambda: small()(torch.ones(1, 3, 12, 12, dtype=torch.int64)), "got torch.int64: convert and normalise"),
        (
            lambda: small()(torch.rand(1, 3, 12, 12, dtype=torch.float64)),
            "samples of torch.float32, as the network's weights, got torch.float64: either x.to(torch.float32)",
        ),
        (
            lambda: small().half().at_resolution(8)(torch.rand(1, 3, 8, 8)),
            "or network.to(torch.float32)",
        ),
        (lambda: small()(torch.rand(1, 3, 12, 12), policy="exakt"), "unknown policy 'exakt'; did you mean 'exact'?"),
        (lambda: small(policy="cheep"), "did you mean 'cheap'?"),
        (lambda: small().at_resolution(0), "at least 1, got 0"),
        (lambda: small().at_resolution((8, 8, 8)), "has 3 axes, but the signal has 2"),
        (lambda: small(sizes=(12, float("nan"), 5)), "positive whole number, got nan"),
        (lambda: small(sizes=(12, 12, 5)), "a ladder must decrease: 12 follows 12"),
        (lambda: small(sizes=(8, 12, 5)), "12 follows 8"),
        (lambda: small(sizes=((12, 8), (8, 12), (5, 5))), "8x12 follows 12x8"),
        (lambda: small(sizes=12), "a ladder is a sequence of sizes"),
        (lambda: small(sizes=(12,), features=(4,)), "at least one residual"),
        (lambda: small(sizes=(12, 8, 1)), "a base grid of 1 holds constants only"),
        (lambda: small(sizes=(12, 8, 2), kernel=WhittakerShannon("periodic")), "must end at 3 or more"),
        (lambda: small(sizes=(8, 7, 4), kernel=WhittakerShannon("periodic")), "hold the same band"),
        (lambda: small(features=(4, 6)), "features must have one value for each of the 3 sizes, got (4, 6)"),
        (lambda: small(features=(4, 6, 0)), "features must be a positive whole number for each size, got 0"),
        (lambda: small(features=4), "features must have one value"),
        (lambda: small(depth=0), "depth must be a positive whole number for each size, got 0"),
        (lambda: small(expansion=-1), "expansion must be a positive number for each size, got -1"),
        (lambda: small(num_classes=-1), "num_classes must be a whole number of at least 0, got -1"),
        (lambda: small(in_channels=0), "in_channels must be a whole number of at least 1, got 0"),
        (lambda: small(ndim=4), "1, 2 or 3 axes, got 4"),
        (lambda: small(kernel="prefect"), "did you mean 'perfect'?"),
        (lambda: small(dropout=1.5), "must be in [0, 1], got 1.5"),
        (lambda: small(block="invertd"), "did you mean 'inverted'?"),
        (lambda: small(head_dropout=2), "the head's dropout must be in [0, 1], got 2"),
        (lambda: small(kernal="fair"), "did you mean 'kernel'?"),
        (lambda: arrn.create_model("arnn"), "unknown model 'arnn'; did you mean 'arrn'?"),
        (lambda: assemble(), "at least one residual"),
        (lambda: assemble(residual(), stem=5), "residual 0 takes 4 features, but 5 reach it"),
        (lambda: assemble(residual(), residual(6, 6, 5, 3)), "residual 1 works on 5, but residual 0 ends on 4"),
        (lambda: assemble(residual(), residual(6, 6, 4, 3, kernel="fair")), "all residuals must share one kernel"),
        (lambda: residual(size=4, next_size=8), "8 follows 4"),
        (lambda: residual()(torch.rand(2, 4, 8, 7)), "expected shape (batch, 4, 8, 8), got (2, 4, 8, 7)"),
        (lambda: LaplacianResidual(nn.Conv2d(4, 6, 3, 3), 4, 6, 9, 4), "the block takes 9 to 3"),
        (lambda: LaplacianResidual(nn.Conv2d(4, 5, 1), 4, 6, 9, 4), "the block gives 5 channels"),
        (lambda: Projection(0, 4), "at least 1 feature on either side, got 0 -> 4"),
        (lambda: InvertedBlock(4, expansion=0), "expansion must be above 0, got 0"),
    ],
)
def test_refusals_give_the_value_and_what_is_allowed(call, message: str) -> None:
    with pytest.raises(arrn.ArrnError) as caught:
        call()
    assert message in str(caught.value)


def test_parts_that_are_no_levels_are_refused() -> None:
    block = InvertedBlock(4, 2, 1)
    parts = {"base": ResidualBase(InvertedBlock(4, 2, 1)), "head": Head(4, 3)}
    level = LaplacianResidual(block, 4, 4, 8, 4)
    with pytest.raises(arrn.ArrnError, match=r"the stem must be a Projection.*got a Linear"):
        ARRN(stem=nn.Linear(3, 4), residuals=[level], **parts)
    with pytest.raises(arrn.ArrnError, match="residual 0 is a InvertedBlock: wrap it"):
        ARRN(stem=Projection(3, 4), residuals=[block], **parts)


def with_dropout(dropout: LaplacianDropout, **options: object) -> ARRN:
    return ARRN(
        stem=Projection(3, 4),
        residuals=[LaplacianResidual(InvertedBlock(4, 2, 1), 4, 4, 8, 4)],
        base=ResidualBase(InvertedBlock(4, 2, 1)),
        head=Head(4, 3),
        dropout=dropout,
        **options,
    )


def test_the_dropout_that_is_given_is_the_one_that_is_used() -> None:
    dropout = LaplacianDropout(0.5)
    assert with_dropout(dropout).dropout is dropout
    of_each_level = LaplacianDropout((0.5, 0.2))
    assert with_dropout(of_each_level, blockless=(6,)).dropout is of_each_level
    assert len(dropout.rates(2)) == 2


def test_one_dropout_serves_networks_with_other_levels() -> None:
    dropout = LaplacianDropout(0.5, draw="sample", unbiased=True)
    models = [with_dropout(dropout, blockless=sizes) for sizes in ((6,), (7, 6, 3), ())]
    assert dropout.p == 0.5
    assert [len(model.dropout.rates(len(model.droppable()))) for model in models] == [2, 4, 1]
    assert {(model.dropout.draw, model.dropout.unbiased) for model in models} == {("sample", True)}
    for model in models:
        model.train()(torch.rand(4, 3, 8, 8))


def test_a_residual_may_be_replaced_after_building() -> None:
    model = small().eval()
    x = torch.rand(2, 3, 12, 12)
    before = model(x)
    model.residuals[0] = copy.deepcopy(model.residuals[0])
    assert torch.equal(model(x), before)
    with torch.no_grad():
        model.levels[0].projection.weight.zero_()
    assert not torch.equal(model(x), before)


@pytest.mark.parametrize("frozen", [True, False])
def test_what_is_frozen_stays_so_at_one_resolution(frozen: bool) -> None:
    model = small().requires_grad_(not frozen)
    assert {parameter.requires_grad for parameter in model.at_resolution(5).parameters()} == {not frozen}


class Branching(nn.Module):
    """Holds its input while a wide signal comes and goes; views and parameters take nothing more."""

    def __init__(self) -> None:
        super().__init__()
        self.widen, self.narrow = nn.Conv2d(3, 50, 1, bias=False), nn.Conv2d(50, 3, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        narrow = self.narrow(self.widen(x.view(x.shape)))
        return (x + narrow).flatten(1)[:, :5] + self.widen.weight.detach().view(150)[:5]


def test_the_memory_of_a_run_is_that_of_the_tensors_that_live_at_once() -> None:
    pixel = 4 * 10 * 10
    # The wide signal and the narrow one that is made of it.
    assert forward_memory(Branching(), (1, 3, 10, 10)) == (50 + 3) * pixel
    assert forward_memory(Branching().double(), (1, 3, 10, 10)) == 2 * (50 + 3) * pixel
    model = small()
    costs = [forward_memory(model.at_resolution(size), (1, 3, size, size)) for size in model.sizes]
    assert costs == sorted(costs, reverse=True)
    least = 4 * (4 + 2 * 8) * 12 * 12  # a block's input and what it is widened to, before and after a norm
    assert least <= forward_memory(model, (1, 3, 12, 12)) <= 3 * least


def test_numbers_of_numpy_are_numbers() -> None:
    model = small(num_classes=np.int64(4), dropout=np.float32(0.5), features=tuple(np.array([4, 6, 8])))
    assert model.num_classes == 4
    assert model.config == small(num_classes=4, dropout=0.5).config


def test_an_array_is_no_signal() -> None:
    with pytest.raises(arrn.ArrnError, match=r"expected a torch.Tensor, got ndarray: torch.as_tensor"):
        small()(np.zeros((1, 3, 8, 8)))


def test_a_network_in_float64_is_counted_too() -> None:
    shape = (1, 3, 12, 12)
    assert multiply_adds(small().double(), shape) == multiply_adds(small(), shape)
