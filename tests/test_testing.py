"""The public law of exact skipping: it holds for good networks, and says where it does not hold for others."""

import copy

import pytest
import torch
from torch import nn

import arrn
from arrn.nn import ARRN, Head, InvertedBlock, LaplacianResidual, Projection, ResidualBase
from arrn.testing import assert_exact_skipping


class ZeroPadded(nn.Sequential):
    def __init__(self, features: int) -> None:
        super().__init__(
            nn.Conv2d(features, 8, 1), nn.SiLU(), nn.Conv2d(8, 8, 3, padding=1), nn.SiLU(), nn.Conv2d(8, features, 1)
        )


def network(second: nn.Module, **options: object) -> ARRN:
    """A network of two levels, the second with the given block and options."""
    return ARRN(
        stem=Projection(3, 4),
        residuals=[
            LaplacianResidual(InvertedBlock(4, 2, 1), 4, 6, 13, 9),
            LaplacianResidual(second, 6, 6, 9, 5, **options),
        ],
        base=ResidualBase(InvertedBlock(6, 2, 1)),
        head=Head(6, 5),
    )


@pytest.mark.parametrize("block", ["inverted", "zero_preserving"])
@pytest.mark.parametrize(
    ("ndim", "sizes"), [(1, (24, 13, 6)), (2, (12, 7, 4)), (2, ((12, 10), (7, 10), (4, 3))), (3, (8, 5, 3))]
)
def test_networks_in_one_to_three_axes_pass(ndim: int, sizes: tuple[object, ...], block: str) -> None:
    features = (4, 6, 8)
    model = arrn.create_model("arrn", sizes=sizes, features=features, depth=1, expansion=2, ndim=ndim, block=block)
    assert_exact_skipping(model)
    assert_exact_skipping(model, policy="cheap")
    for level in model.levels:
        assert_exact_skipping(level)


def test_it_leaves_the_network_and_the_random_state_alone() -> None:
    model = network(InvertedBlock(6, 2, 1)).train()
    weights, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    assert_exact_skipping(model, sizes=[9, (7, 13)], dtype=torch.float32, tolerance=1e-4)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize(
    ("block", "options"), [(ZeroPadded(6), {"check": False}), (InvertedBlock(6, 2, 1), {"psi": False, "check": False})]
)
def test_a_block_that_cannot_be_skipped_fails_with_the_level_and_the_error(
    block: nn.Module, options: dict[str, bool]
) -> None:
    model = network(block, **options)
    said = r"level 2 \(grid 5\), input of size 5: with and without skipping the answers differ by [\d.e-]+, more than"
    with pytest.raises(AssertionError, match=said):
        assert_exact_skipping(model)
    said = r"level 9 -> 5: a signal of size 5 has no details to skip, but skipping changes it by [\d.e-]+, more than"
    with pytest.raises(AssertionError, match=said):
        assert_exact_skipping(model.levels[1])
    assert_exact_skipping(model, sizes=[9])  # its first level is as good as ever
    assert_exact_skipping(model.levels[0])


def test_an_approximate_kernel_is_named() -> None:
    options = {"sizes": (12, 6), "features": (4, 6), "depth": 1, "kernel": "poor"}
    with pytest.raises(AssertionError, match=r"TruncatedGaussian\(.*\) is not exact"):
        assert_exact_skipping(arrn.create_model("arrn", **options))


def test_blocks_that_do_nothing_prove_nothing() -> None:
    silent = nn.Conv2d(6, 6, 1, bias=False)
    nn.init.zeros_(silent.weight)
    model = network(silent)
    with pytest.raises(AssertionError, match=r"level 1 \(grid 9\): the block changes the answer .* by [\d.e-]+ only"):
        assert_exact_skipping(model)
    with pytest.raises(AssertionError, match="level 9 -> 5: the block changes"):
        assert_exact_skipping(model.levels[1])


def test_what_it_cannot_check_is_refused() -> None:
    model = network(InvertedBlock(6, 2, 1))
    with pytest.raises(arrn.ArrnError, match="law of an ARRN, a Backbone or a LaplacianResidual, got a InvertedBlock"):
        assert_exact_skipping(model.levels[0].block)
    with pytest.raises(arrn.ArrnError, match="a signal of size 7 has details that this level must not skip"):
        assert_exact_skipping(model.levels[1], sizes=[7])


def test_a_skipped_block_that_runs_is_noticed() -> None:
    class Eager(LaplacianResidual):
        def forward(self, r: torch.Tensor, survivors: torch.Tensor | int | None = None) -> torch.Tensor:
            self.block(r)
            return super().forward(r, survivors)

    level = Eager(InvertedBlock(4, 2, 1), 4, 4, 9, 5)
    with pytest.raises(AssertionError, match="the block ran though the level was skipped"):
        assert_exact_skipping(level)
