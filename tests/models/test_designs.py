"""The named designs: the paper's sizes, the exact law, training, saving; with both kinds of blocks."""

import dataclasses
import itertools
from pathlib import Path

import pytest
import torch
from torch import nn

import arrn
from arrn.datasets import facts_of
from arrn.experiments.plan import resolutions_for
from arrn.models import DESIGNS, summarise
from arrn.nn import ARRN, check_zero_constant, count_parameters, multiply_adds
from arrn.signal import resample
from arrn.testing import adaptation_discrepancy, awaken_norms

# Millions of parameters at the base and in all, as in the paper; the inputs; dropout, which is ours.
PAPER = {
    "arrn_cifar10": (5.33, 8.09, 32, 0.65),
    "arrn_cifar100": (9.59, 14.5, 32, 0.5),
    "arrn_tinyimagenet": (15.0, 19.8, 64, 0.4),
    "arrn_stl10": (13.8, 18.4, 96, 0.5),
}
LARGE = [*list(PAPER)[1:], "arrn_imagenette224"]
SMALL = ["arrn_small", "arrn_audio_small", "arrn_volume_small"]
EVERY = [*SMALL, "arrn_cifar10", *(pytest.param(n, marks=pytest.mark.slow) for n in LARGE)]


def signals(name: str, batch: int, *size: int) -> torch.Tensor:
    """Noise for a design, on its top grid or on one of `size` along every axis (or each)."""
    design = DESIGNS[name]
    batch = batch if design.ndim < 3 else -(-batch // 2)
    grid = (size or design.sizes[:1]) * (1 if len(size) == design.ndim else design.ndim)
    return torch.randn(batch, design.in_channels, *grid)


@pytest.mark.parametrize(("name", "figures"), PAPER.items())
def test_sizes_agree_with_the_paper(name: str, figures: tuple[float, float, int, float]) -> None:
    base, total, top, dropout = figures
    summary, design = summarise(name), DESIGNS[name]
    assert summary.base_parameters == pytest.approx(base * 1e6, rel=0.01)
    assert summary.parameters == pytest.approx(total * 1e6, rel=0.01)
    assert (design.sizes[0], design.dropout, design.policy) == (top, dropout, "exact")
    with torch.device("meta"):
        adapted = arrn.create_model(name).at_resolution(design.sizes[-1])
    assert count_parameters(adapted) == summary.base_parameters


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100", "tinyimagenet", "stl10", "imagenette224"])
def test_every_resolution_of_the_experiments_is_met_in_training_or_lies_between_two_that_are(dataset: str) -> None:
    design = DESIGNS[facts_of(dataset).design]
    met = {*design.sizes, *design.blockless}
    evaluated = resolutions_for(design.sizes[0], dataset)
    assert min(met) <= min(evaluated)
    between = [n for n in evaluated if n not in met]
    assert len(between) <= len(evaluated) / 3, between
    assert all(min(met) < n < max(met) for n in between)


@pytest.mark.parametrize("name", DESIGNS)
def test_multiply_adds_fall_over_the_ladder(name: str) -> None:
    costs = summarise(name).multiply_adds
    assert len(costs) == len(DESIGNS[name].sizes) >= 3
    assert all(low < high for high, low in itertools.pairwise(costs))


def test_a_design_is_data() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        DESIGNS["arrn_small"].dropout = 0.0


@pytest.mark.parametrize("block", ["inverted", "zero_preserving"])
@pytest.mark.parametrize("name", EVERY)
def test_adaptation_is_exact_and_the_skipped_blocks_matter(name: str, block: str) -> None:
    model = arrn.create_model(name, block=block, policy="exact")
    top = DESIGNS[name].sizes[0]
    awaken_norms(model, signals(name, 4), steps=5)
    x = signals(name, 2)
    for level in model.levels:
        if block == "inverted":
            check_zero_constant(level.block, level.in_features, level.size)
    sizes = [(top * 5 // 8) | 1, top // 4, top // 2, top * 3 // 4]
    sizes = sizes if DESIGNS[name].ndim < 3 else sizes[:2]  # volumes take their time
    for size in sizes:
        assert adaptation_discrepancy(model, resample(x, size)) < 1e-4
    smoothed = resample(resample(x, model.sizes[1]), top)
    with torch.no_grad():
        assert (model(x) - model(smoothed)).norm() / model(x).norm() > 1e-2
        model.double()
        assert max(adaptation_discrepancy(model, resample(x.double(), size)) for size in sizes) < 1e-9


@pytest.mark.parametrize("name", EVERY)
def test_trains_and_survives_saving(name: str, tmp_path: Path) -> None:
    model = arrn.create_model(name, num_classes=7).train()
    top = DESIGNS[name].sizes[0]
    x = signals(name, 8)
    nn.functional.cross_entropy(model(x), torch.arange(len(x)) % 7).backward()
    assert all(p.grad is not None for p in model.parameters())
    arrn.save(model.eval(), tmp_path)
    x = signals(name, 2, *(top * 3 // 4, top // 2 + 1, top // 2)[: DESIGNS[name].ndim])
    with torch.no_grad():
        assert torch.equal(arrn.load(tmp_path)(x), model(x))


def test_bad_options_are_refused() -> None:
    with pytest.raises(arrn.ArrnError, match="num_classes must be a whole number of at least 0, got -1"):
        arrn.create_model("arrn_small", num_classes=-1)
    with pytest.raises(arrn.ArrnError, match="unknown block 'zeropreserving'; did you mean 'zero_preserving'"):
        arrn.create_model("arrn_small", block="zeropreserving")
    with pytest.raises(arrn.ArrnError, match=r"a block's dropout must be in \[0, 1\), got 1"):
        arrn.create_model("arrn_small", block_dropout=1)


@pytest.mark.parametrize("block", ["inverted", "zero_preserving"])
def test_blocks_that_drop_channels_do_so_in_training_alone(block: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = arrn.create_model("arrn_small", block=block, block_dropout=0.3, dropout=0.0)
    x = signals("arrn_small", 4)
    awaken_norms(model, x)
    first, second = (model.train()(x) for _ in range(2))
    assert (first - second).abs().max() > 1e-2
    arrn.save(model, tmp_path)
    again = arrn.load(tmp_path)
    with torch.no_grad():
        assert torch.equal(again.eval()(x), model.eval()(x))
        low = resample(x, 16)
        torch.testing.assert_close(model(low), model(low, adapt=False), rtol=1e-3, atol=1e-3)
    assert [m.p for m in again.modules() if isinstance(m, nn.Dropout2d)] == [0.3] * 4


@pytest.mark.parametrize("name", ["arrn_small", "arrn_cifar10", "arrn_mobilenet_v3_small"])
def test_a_summary_counts_what_runs_at_each_grid(name: str) -> None:
    with torch.device("meta"):
        model = arrn.create_model(name).eval()
        assert isinstance(model, ARRN)
        expected = [multiply_adds(model.at_resolution(grid), (1, 3, *grid)) for grid in model.grids]
    assert list(summarise(name).multiply_adds) == expected
