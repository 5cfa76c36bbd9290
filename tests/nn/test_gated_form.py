"""The gated form: what the gate reads, and how levels of a gated network meet. Exactness: test_difference_form."""

import pytest
import torch
from torch import nn

import arrn
from arrn.nn import Head, Junction, LaplacianResidual, StridedBlock, multiply_adds
from arrn.signal import resample
from arrn.testing import assert_exact_skipping, awaken_norms
from strategies import relative_error


class Ones(nn.Module):
    """Answers everything by ones, so that what comes out is the gate."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(x)


def gate_of(r: torch.Tensor, **options: float) -> torch.Tensor:
    residual = LaplacianResidual(Ones(), 3, 3, 8, 4, form="gated", **options).to(r.dtype)
    nn.init.eye_(residual.projection.weight)
    return (residual(r) - residual.skip(r))[:, 0, 0, 0]


@torch.no_grad()
def test_the_gate_is_the_formula_of_the_energy_of_the_details() -> None:
    r = torch.randn(6, 3, 8, 8, dtype=torch.float64) * torch.logspace(-3, 0, 6, dtype=torch.float64).view(-1, 1, 1, 1)
    details = r - resample(resample(r, 4), 8)
    for threshold in (0.01, 0.5):
        for reads in (3, 1):
            energy = details[:, :reads].square().mean(dim=(1, 2, 3))
            expected = 1 / (1 + (threshold**2 / energy) ** 2)
            torch.testing.assert_close(gate_of(r, threshold=threshold, reads=reads), expected)
    half = details / details.square().mean(dim=(1, 2, 3), keepdim=True).sqrt() * 0.07
    torch.testing.assert_close(gate_of(half, threshold=0.07), torch.full((6,), 0.5, dtype=torch.float64))


@torch.no_grad()
def test_a_channel_that_is_not_read_does_not_open_the_gate() -> None:
    r = torch.zeros(2, 3, 8, 8)
    r[1, 2].normal_()
    assert gate_of(r, reads=2).tolist() == [0, 0]
    assert gate_of(r, reads=3)[1] > 0.99


@torch.no_grad()
def test_rounding_leaves_the_gate_shut_in_every_precision() -> None:
    """Noise enters by its fourth power: what is left is far below the rounding of the answer itself."""
    smooth = resample(torch.randn(4, 3, 4, 4, dtype=torch.float64), 8)
    residual = LaplacianResidual(Ones(), 3, 3, 8, 4, form="gated")
    bounds = {torch.float64: 1e-40, torch.float32: 1e-18, torch.float16: 1e-4, torch.bfloat16: 2e-2}
    for dtype, bound in bounds.items():
        net = residual.to(dtype)
        details = net._read_details(smooth.to(dtype), net.down(smooth.to(dtype)))
        assert float(net._openness(details).max()) < bound, dtype
    with torch.autocast("cpu", torch.bfloat16):
        details = residual.float()._read_details(smooth.float(), residual.down(smooth.float()))
    assert details.dtype == torch.float32
    assert float(residual._openness(details).max()) < bounds[torch.float32]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 0}, "must be above 0, got 0"),
        ({"threshold": float("nan")}, "must be above 0, got nan"),
        ({"reads": 0}, "from 1 to the 4 channels that come in, got 0"),
        ({"reads": 5}, "from 1 to the 4 channels that come in, got 5"),
        ({"psi": True}, "the gated form has no constant to reject"),
        ({"bracket_norm": True}, "the gated form has no bracket"),
    ],
)
def test_what_the_gate_cannot_do_is_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(arrn.ArrnError, match=message):
        LaplacianResidual(nn.Conv2d(4, 4, 3, padding=1), 4, 4, 8, 4, form="gated", **options)


@torch.no_grad()
def test_a_junction_adds_what_comes_from_above_and_takes_as_much_of_its_own_away() -> None:
    entry, body = nn.Conv2d(3, 8, 3, padding=1), StridedBlock(8, 5, 2)
    junction = Junction(entry, body, channels=3).eval()
    s, f, g = torch.randn(2, 3, 6, 6), torch.randn(2, 8, 6, 6), torch.rand(2, 1, 1, 1)
    alone = junction(s)
    torch.testing.assert_close(alone, torch.cat([torch.zeros(2, 3, 3, 3), torch.ones(2, 1, 3, 3), body(entry(s))], 1))
    torch.testing.assert_close(junction(torch.cat([s, torch.zeros(2, 9, 6, 6)], 1)), alone)
    met = junction(torch.cat([s, g.expand(2, 1, 6, 6), f], 1))
    torch.testing.assert_close(met[:, 4:], body(f + (1 - g) * entry(s)))
    assert relative_error(Junction(entry, body, 3, ends=True).eval()(s), body(entry(s))) == 0


LADDERS = [
    {"sizes": (96, 48, 24, 12)},
    {"sizes": (33, 20, 9)},
    {"sizes": ((24, 16), (12, 8), (6, 4))},
    {"sizes": (64, 32, 10), "ndim": 1, "in_channels": 1},
    {"sizes": (12, 6, 3), "ndim": 3, "in_channels": 2, "repeats": 0},
    {"sizes": (16, 7), "repeats": 3, "base_repeats": 1},
]


@pytest.mark.parametrize("ladder", LADDERS, ids=lambda ladder: str(ladder["sizes"]))
def test_designs_are_built_for_any_ladder_and_skip_exactly(ladder: dict[str, object]) -> None:
    model = arrn.create_model("arrn_pyramid", width=8, num_classes=4, **ladder)
    assert_exact_skipping(model, tolerance=1e-10)
    assert_exact_skipping(model, dtype=torch.float32, tolerance=1e-4)


def test_what_the_design_costs() -> None:
    """Parameters, and million multiply-adds at 32, 16 and 8, as the documents say."""
    with torch.device("meta"):
        model = arrn.create_model("arrn_pyramid")
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 2) == 0.37
    counted = tuple(round(multiply_adds(model.at_resolution(n), (1, 3, n, n)) / 1e6) for n in (32, 16, 8))
    assert counted == (37, 16, 7)


@torch.no_grad()
def test_dropping_levels_in_training_is_lowering_the_input() -> None:
    """In training mode too, draw "sample": batch norms see the same signals."""
    model = arrn.create_model(
        "arrn_pyramid", sizes=(12, 8, 5), width=8, dropout=(1.0, 0.0), blockless=(), draw="sample"
    ).double()
    awaken_norms(model, torch.randn(4, 3, 12, 12, dtype=torch.float64))
    x = torch.randn(8, 3, 12, 12, dtype=torch.float64)
    model.train()
    assert relative_error(model(x), model(resample(x, 8))) < 1e-10


@torch.no_grad()
def test_stratified_dropout_runs_a_level_for_the_samples_that_keep_it_alone() -> None:
    model = arrn.create_model("arrn_pyramid", sizes=(12, 8, 5), width=8, dropout=(0.5, 0.5), blockless=())
    model.dropout.shuffled = True
    ran: list[int] = []
    for level in model.levels:
        level.block.register_forward_hook(lambda _, inputs, __: ran.append(len(inputs[0])))
    model.double().train()
    x = torch.randn(8, 3, 12, 12, dtype=torch.float64)
    model(x)
    assert ran == [4, 6]
    features = model.forward_levels(x)
    torch.testing.assert_close(features[1][:6, :3], resample(x, 8)[:6])
    for level, count in zip(features[:2], (4, 6), strict=True):
        assert not level[count:, 3:].any()
        assert bool((level[:count, 3] > 0.9).all())


def test_the_signal_is_carried_as_it_is_and_nothing_of_that_is_trained() -> None:
    model = arrn.create_model("arrn_pyramid", width=8)
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    assert frozen == ["residuals.0.projection.weight", "residuals.1.projection.weight", "stem.weight"]
    x = torch.randn(2, 3, 32, 32)
    for level, size in enumerate((32, 16)):
        torch.testing.assert_close(model.eval().forward_levels(x)[level][:, :3], resample(x, size))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 3}, "width must be a whole number of at least 4, got 3"),
        ({"repeats": -1}, "repeats must be whole numbers of at least 0, got -1"),
        ({"repeats": (1, 1, 1)}, "at most one number for each of the 2 levels"),
        ({"base_repeats": 0}, "base_repeats must be a whole number of at least 1, got 0"),
    ],
)
def test_wrong_options_of_a_design_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(arrn.ArrnError, match=message):
        arrn.create_model("arrn_pyramid", **options)


def test_a_strided_block_takes_each_axis_by_its_own_stride() -> None:
    assert StridedBlock(3, 5, (2, 3), 2)(torch.rand(2, 3, 4, 9)).shape == (2, 5, 2, 3)
    assert StridedBlock(3, 5, 1, 3)(torch.rand(2, 3, 4, 3, 5)).shape == (2, 5, 4, 3, 5)
    assert Head(5, 2)(StridedBlock(3, 5, 2, 1)(torch.rand(2, 3, 8))).shape == (2, 2)
