"""Levels without a block: what dropout makes of them, and that nothing else notices them."""

import itertools
from pathlib import Path

import pytest
import torch
from torch import nn

import arrn
from arrn.errors import ArrnError
from arrn.nn import ARRN, LaplacianDropout
from arrn.signal import kernel, resample
from arrn.signal.grid import Size, as_grid

SMALL = {"sizes": (12, 8), "features": (4, 6), "depth": 1, "expansion": 2, "head_dropout": 0.0}


def network(**options: object) -> ARRN:
    torch.manual_seed(0)
    model = arrn.create_model("arrn", **(SMALL | options))
    assert isinstance(model, ARRN)
    return model.double()


def what_it_gets(module: nn.Module, model: ARRN, x: torch.Tensor) -> torch.Tensor:
    got: list[torch.Tensor] = []
    with module.register_forward_pre_hook(lambda _, given: got.append(given[0])):
        model(x)
    return got[0]


def what_the_base_gets(model: ARRN, x: torch.Tensor) -> torch.Tensor:
    return what_it_gets(model.base, model, x)


def assert_equal_in_some_order(first: torch.Tensor, second: torch.Tensor) -> None:
    norms = first.flatten(1).norm(dim=1), second.flatten(1).norm(dim=1)
    torch.testing.assert_close(norms[0].sort().values, norms[1].sort().values)


@pytest.mark.parametrize("draw", ["sample", "stratified", "batch"])
def test_dropping_them_is_lowering_the_resolution(draw: str) -> None:
    model = network(blockless=[5, 3], dropout=[1.0, 1.0, 1.0], draw=draw).train()
    x = torch.randn(4, 3, 12, 12, dtype=torch.float64)
    lowest = resample(x, 3)
    # All are dropped: the base gets what a 3x3 input gives it, in some order of the batch.
    assert_equal_in_some_order(what_the_base_gets(model, x), what_the_base_gets(model.eval(), lowest))


@pytest.mark.parametrize("draw", ["sample", "stratified", "batch"])
def test_between_two_grids_the_next_block_sees_a_lower_resolution(draw: str) -> None:
    model = network(blockless=[11, 9, 5], dropout=[1.0, 1.0, 0.0, 0.0], draw=draw).train()
    x = torch.randn(4, 3, 12, 12, dtype=torch.float64)
    got = what_it_gets(model.levels[0], model, x)
    assert_equal_in_some_order(got, what_it_gets(model.levels[0], model.eval(), resample(x, 9)))


@pytest.mark.parametrize("draw", ["sample", "stratified"])
def test_each_sample_is_smoothed_once(draw: str) -> None:
    # With an approximate kernel, smoothing to 10 and then to 8 is not smoothing to 8.
    options = {"kernel": "poor", "draw": draw}
    model = network(blockless=[10, 5], dropout=[1.0, 1.0, 0.0], **options).train()
    x = torch.randn(4, 3, 12, 12, dtype=torch.float64)
    assert_equal_in_some_order(
        what_the_base_gets(model, x), what_the_base_gets(network(dropout=1.0, **options).train(), x)
    )


@pytest.mark.parametrize("boundary", ["symmetric", "periodic"])
@pytest.mark.parametrize(("sizes", "lower"), [((13, 6), (9, 4, 3)), (((12, 9), (6, 5)), ((9, 7), (4, 3)))])
def test_lowering_the_input_is_lowering_at_each_level(
    sizes: tuple[Size, ...], lower: tuple[Size, ...], boundary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for ndim in (1, 2, 3) if isinstance(sizes[0], int) else (2,):
        options = {"ndim": ndim, "kernel": kernel("perfect", boundary=boundary), "dropout": 0.7, "in_channels": 2}
        model = network(sizes=sizes, blockless=lower, **options).train()
        x = torch.randn(24, 2, *as_grid(sizes[0], ndim), dtype=torch.float64)
        torch.manual_seed(1)
        ahead = what_the_base_gets(model, x)
        with monkeypatch.context() as patch:
            patch.setattr("arrn.nn.chain.lower_ahead", lambda x, steps, kept: (x, kept))
            torch.manual_seed(1)
            at_each_level = what_the_base_gets(model, x)
        torch.testing.assert_close(ahead, at_each_level)


def test_an_input_below_a_level_is_left_alone_by_it() -> None:
    model = network(blockless=[11, 5], dropout=[1.0, 1.0, 0.0]).train()
    x = torch.randn(4, 3, 7, 7, dtype=torch.float64)
    assert_equal_in_some_order(what_the_base_gets(model, x), what_the_base_gets(model.eval(), x))


def test_keeping_them_changes_nothing() -> None:
    with_levels, without = network(blockless=[5, 3], dropout=[0.5, 0.0, 0.0]), network(dropout=0.5)
    x = torch.randn(6, 3, 12, 12, dtype=torch.float64)
    answers = []
    for model in (with_levels, without):
        torch.manual_seed(1)
        answers.append(model.train()(x))
    torch.testing.assert_close(*answers)


def test_evaluation_does_not_notice_them_and_a_file_remembers_them(tmp_path: Path) -> None:
    model, without = network(blockless=[5], dropout=0.5).eval(), network().eval()
    x = torch.randn(2, 3, 7, 7, dtype=torch.float64)
    assert torch.equal(model(x), without(x))
    assert torch.equal(model.at_resolution(7)(x), without.at_resolution(7)(x))
    assert model.state_dict().keys() == without.state_dict().keys()
    arrn.save(model, tmp_path / "saved")
    loaded = arrn.load(tmp_path / "saved")
    assert "drops to 5" in repr(loaded)


def test_the_share_of_samples_that_lose_each_is_the_chains() -> None:
    dropout = LaplacianDropout(0.5, "stratified").train()
    survivors = dropout(16, 3, torch.device("cpu"))
    assert survivors is not None
    assert survivors.levels == (8, 12, 14)


def test_residuals_are_dropped_as_often_as_without_them() -> None:
    model = network(sizes=(12, 8, 6), features=(4, 6, 6), blockless=[11, 9, 7, 5, 3], dropout=0.6)
    steps = model.droppable()
    kept = dict(zip(steps, model.dropout.survival(len(steps)), strict=True))
    assert [kept[level] for level in model.levels] == pytest.approx(LaplacianDropout(0.6).survival(2))
    shares = [here - above for above, here in itertools.pairwise((0.0, *kept.values(), 1.0))]
    assert min(shares) > 0.07  # of the samples, at every one of eight resolutions


def test_a_network_cast_to_a_resolution_trains_with_them() -> None:
    model = network(blockless=[5], dropout=[0.0, 1.0]).train()
    cast = model.at_resolution(8)
    x = torch.randn(3, 3, 8, 8, dtype=torch.float64)
    got: list[torch.Tensor] = []
    with model.base.register_forward_pre_hook(lambda _, given: got.append(given[0])):
        cast(x)
    (r,) = got
    torch.testing.assert_close(resample(resample(r, 5), 8), r)


@pytest.mark.parametrize(
    ("sizes", "words"), [([13], "must decrease"), ([4, 5], "must decrease"), ([8], "8 is a size of the ladder already")]
)
def test_they_must_descend_and_be_no_sizes_of_the_ladder(sizes: list[int], words: str) -> None:
    with pytest.raises(ArrnError, match=words):
        network(blockless=sizes)


def test_one_that_loses_nothing_is_refused() -> None:
    with pytest.raises(ArrnError, match="hold the same band"):
        network(sizes=(12, 6), blockless=[5], kernel=kernel("perfect", boundary="periodic"))


def test_each_has_a_p_of_its_own_and_is_shown() -> None:
    with pytest.raises(ArrnError, match="p has 1 values"):
        network(blockless=[5], dropout=[0.5])
    assert "drops to 5, 3 too" in repr(network(blockless=[5, 3]))
