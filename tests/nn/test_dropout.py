"""Laplacian dropout: the chain law, three ways to draw it, and its meaning as a lower resolution."""

import logging
from itertools import pairwise

import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

import arrn
from arrn.nn import ARRN, LaplacianDropout, rates_for_shares
from arrn.signal import resample
from arrn.testing import awaken_norms
from strategies import KINDS, relative_error

CPU = torch.device("cpu")
RATES = [0.6, (0.5, 0.3, 0.8)]
LEVELS = 3


def chain_law(p: float | tuple[float, ...]) -> list[float]:
    """The probability that the first surviving level is 0, 1, ..., none; from the paper's recursion."""
    rates = [p] * LEVELS if isinstance(p, float) else list(p)
    law, dropped = [], 1.0
    for rate in rates:
        law.append(dropped * (1 - rate))
        dropped *= rate
    return [*law, dropped]


def check_chi_square(first_survivors: list[int], p: float | tuple[float, ...]) -> None:
    observed = [first_survivors.count(n) for n in range(LEVELS + 1)]
    expected = [len(first_survivors) * probability for probability in chain_law(p)]
    assert scipy.stats.chisquare(observed, expected).pvalue > 1e-3


@pytest.mark.parametrize("p", RATES)
def test_sample_draws_follow_the_chain_law(p: float | tuple[float, ...], device: torch.device) -> None:
    survivors = LaplacianDropout(p, draw="sample")(20000, LEVELS, device)
    gates = torch.stack([level.cpu() for level in survivors.levels])
    assert bool((gates[1:] >= gates[:-1]).all()), "a level above a dropped one is dropped too"
    check_chi_square((LEVELS - gates.sum(dim=0)).tolist(), p)


@pytest.mark.parametrize("p", RATES)
def test_batch_draws_follow_the_chain_law(p: float | tuple[float, ...]) -> None:
    dropout = LaplacianDropout(p, draw="batch")
    firsts = []
    for _ in range(4000):
        counts = dropout(7, LEVELS, CPU).levels
        assert set(counts) <= {0, 7}
        assert list(counts) == sorted(counts)
        firsts.append(counts.count(0))
    check_chi_square(firsts, p)


@given(st.integers(1, 300), st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_stratified_counts(batch: int, p: list[float]) -> None:
    dropout = LaplacianDropout(p, draw="stratified")
    survivors = dropout(batch, len(p), CPU)
    if survivors is None:
        assert all(q == 1 for q in dropout.survival(len(p)))
        return
    assert list(survivors.levels) == sorted(survivors.levels)
    for count, q in zip(survivors.levels, dropout.survival(len(p)), strict=True):
        assert abs(count - batch * q) <= 0.5 + 1e-9
    assert sorted(survivors.order.tolist()) == list(range(batch))


@pytest.mark.parametrize("p", RATES)
def test_stratified_includes_every_sample_equally_often(p: float | tuple[float, ...], device: torch.device) -> None:
    batch, draws = 16, 3000
    dropout = LaplacianDropout(p, draw="stratified")
    included = torch.zeros(LEVELS, batch)
    for _ in range(draws):
        survivors = dropout(batch, LEVELS, device)
        for n, count in enumerate(survivors.levels):
            included[n, survivors.order[:count].cpu()] += 1
    for n, count in enumerate(survivors.levels):
        q = count / batch
        sigma = (q * (1 - q) / draws) ** 0.5
        assert float((included[n] / draws - q).abs().max()) <= 4 * sigma


def test_unbiased_counts_have_the_exact_mean() -> None:
    dropout = LaplacianDropout((0.7, 0.9), draw="stratified", unbiased=True)
    counts = torch.tensor([dropout(3, 2, CPU).levels for _ in range(20000)], dtype=torch.float64)
    assert torch.allclose(counts.mean(dim=0), torch.tensor([0.9, 1.11], dtype=torch.float64), atol=0.015)
    assert bool((counts[:, 1] >= counts[:, 0]).all())


def test_starving_a_level_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    dropout = LaplacianDropout(0.9, draw="stratified")
    with caplog.at_level(logging.WARNING):
        dropout(2, 2, CPU)
        dropout(2, 2, CPU)
    assert [record.message for record in caplog.records] == [
        "a batch of 2 is too small for p=0.9: rounding never trains the highest levels; "
        "use larger batches, or LaplacianDropout(p, unbiased=True)"
    ]


def settled(p: object, draw: str, device: torch.device = CPU, **options: object) -> ARRN:
    """A network with batch norms in evaluation mode and dropout in training mode."""
    torch.manual_seed(0)
    model = arrn.create_model(
        "arrn",
        sizes=(11, 8, 5),
        features=(4, 6, 8),
        depth=1,
        expansion=2,
        dropout=p,
        draw=draw,
        num_classes=5,
        **options,
    ).to(device, torch.float64)
    awaken_norms(model, torch.randn(8, 3, 11, 11, dtype=torch.float64, device=device))
    model.dropout.train()
    return model


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("draw", ["sample", "stratified", "batch"])
@torch.no_grad()
def test_dropping_a_prefix_is_smoothing_the_input(draw: str, kind: dict[str, str], device: torch.device) -> None:
    model = settled(0.5, draw, device, **kind)
    x = torch.randn(24, 3, 11, 11, dtype=torch.float64, device=device)
    model.dropout.eval()
    smoothed = torch.stack([model(resample(x, size)) for size in model.sizes])
    model.dropout.train()
    seen = set()
    for _ in range(30 if draw == "batch" else 6):
        distance = (model(x)[None] - smoothed).norm(dim=-1) / smoothed.norm(dim=-1)
        # Each sample's logits, in the input's order, are those of its own smoothed version.
        nearest, level = distance.min(dim=0)
        assert float(nearest.max()) < 1e-10
        seen |= set(level.tolist())
        if draw == "stratified":
            assert torch.bincount(level, minlength=3).tolist() == [12, 6, 6]
    assert seen == {0, 1, 2}


@pytest.mark.parametrize("draw", ["sample", "stratified", "batch"])
@torch.no_grad()
def test_certain_drops(draw: str) -> None:
    model = settled((1.0, 0.0), draw)
    x = torch.randn(4, 3, 11, 11, dtype=torch.float64)
    assert relative_error(model(x), model.eval()(resample(x, 8))) < 1e-12
    assert relative_error(settled((1.0, 1.0), draw)(x), model(resample(x, 5))) < 1e-12


@pytest.mark.parametrize("bracket_norm", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=str)
@torch.no_grad()
def test_gating_samples_is_smoothing_in_training_mode_too(kind: dict[str, str], bracket_norm: bool) -> None:
    options = {**kind, "bracket_norm": bracket_norm and kind.get("form") == "difference", "depth": 1, "expansion": 2}
    model = arrn.create_model(
        "arrn", sizes=(11, 8, 5), features=(4, 6, 8), dropout=(1.0, 0.0), draw="sample", head_dropout=0, **options
    )
    model.double().train()
    x = torch.randn(8, 3, 11, 11, dtype=torch.float64)
    assert relative_error(model(x), model(resample(x, 8))) < 1e-10


@torch.no_grad()
def test_features_come_in_the_order_of_the_input() -> None:
    model = settled(0.5, "stratified")
    x = torch.randn(8, 3, 11, 11, dtype=torch.float64)
    x[:, 0] += torch.arange(8.0).view(-1, 1, 1) * 100  # tells the samples apart whatever is dropped
    model.dropout.eval()
    smoothed = torch.stack([model.forward_features(resample(x, size)) for size in model.sizes])
    model.dropout.train()
    for level in model.forward_levels(x):
        steps = level.mean(dim=(1, 2, 3)).diff()
        assert bool((steps > 0).all() or (steps < 0).all())
    distance = (model.forward_features(x)[None] - smoothed).flatten(2).norm(dim=-1) / smoothed.flatten(2).norm(dim=-1)
    assert float(distance.min(dim=0).values.max()) < 1e-10


@torch.no_grad()
def test_lower_inputs_drop_only_the_levels_they_have() -> None:
    model = settled((1.0, 0.0), "sample")
    x = torch.randn(4, 3, 8, 8, dtype=torch.float64)
    kept = model(x)
    assert relative_error(kept, model.eval()(x)) < 1e-12
    assert model.dropout.survival(2, first=1) == (1.0,)


@pytest.mark.parametrize("draw", ["sample", "stratified", "batch"])
@torch.no_grad()
def test_evaluation_mode_draws_nothing(draw: str) -> None:
    model = settled(0.9, draw).eval()
    x = torch.randn(4, 3, 11, 11, dtype=torch.float64)
    state = torch.get_rng_state()
    assert torch.equal(model(x), model(x))
    assert torch.equal(torch.get_rng_state(), state)


def test_batch_draw_leaves_the_norms_of_skipped_blocks_alone() -> None:
    model = settled((1.0, 1.0), "batch").train()
    before = {name: value.clone() for name, value in model.residuals.state_dict().items()}
    model(torch.randn(8, 3, 11, 11, dtype=torch.float64))
    assert all(torch.equal(value, before[name]) for name, value in model.residuals.state_dict().items())


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6).filter(any), st.data())
def test_with_the_rates_of_shares_that_part_of_the_samples_is_left_at_each_resolution(
    counts: list[int], data: st.DataObject
) -> None:
    resolutions = sorted(data.draw(st.sets(st.integers(1, 99), min_size=len(counts), max_size=len(counts))))[::-1]
    wanted = [count / sum(counts) for count in counts]
    named = {n: share for n, share in zip(resolutions, wanted, strict=True) if share or data.draw(st.booleans())}
    rates = rates_for_shares(named, resolutions)
    assert all(0 <= p <= 1 for p in rates)
    kept = [0.0, *LaplacianDropout(rates).survival(len(rates)), 1.0]
    assert [below - above for above, below in pairwise(kept)] == pytest.approx(wanted, abs=1e-12)
    # Samples that enter lower down have the shares of what is left to them.
    first = data.draw(st.integers(0, len(rates)))
    if sum(wanted[first:]) > 0:
        kept = [0.0, *LaplacianDropout(rates).survival(len(rates), first), 1.0]
        left = [share / sum(wanted[first:]) for share in wanted[first:]]
        assert [below - above for above, below in pairwise(kept)] == pytest.approx(left, abs=1e-12)


@pytest.mark.parametrize(
    ("shares", "steps", "message"),
    [
        ({12: 1.0}, [32, 16], "shares has 12, but dropout leaves samples at 32, 16 only.*blockless=\\[12\\]"),
        ({32: -0.5}, [32, 16], "share of 32 must be a number of at least 0, got -0.5"),
        ({32: float("nan")}, [32, 16], "share of 32 must be"),
        ({}, [32, 16], "some resolution must have a share above 0"),
        ({16: 1.0}, [16, 16], "shares need a resolution for each level"),
    ],
)
def test_shares_that_dropout_cannot_give_are_refused(shares: dict[int, float], steps: list[int], message: str) -> None:
    with pytest.raises(arrn.ArrnError, match=message):
        rates_for_shares(shares, steps)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LaplacianDropout(1.2), "must be in [0, 1], got 1.2"),
        (lambda: LaplacianDropout((0.5, -0.1)), "got -0.1 in p=(0.5, -0.1)"),
        (lambda: LaplacianDropout(float("nan")), "must be in [0, 1], got nan"),
        (lambda: LaplacianDropout("0.5"), "must be in [0, 1], got '0'"),
        (lambda: LaplacianDropout(0.5, draw="stratifed"), "did you mean 'stratified'?"),
        (lambda: LaplacianDropout((0.5, 0.5))(4, 3, CPU), "p has 2 values, (0.5, 0.5), but there are 3 levels"),
        (lambda: settled((0.5, 0.5, 0.5), "sample"), "but there are 2 levels"),
    ],
)
def test_bad_dropout_is_refused(call, message: str) -> None:
    with pytest.raises(arrn.ArrnError) as caught:
        call()
    assert message in str(caught.value)
