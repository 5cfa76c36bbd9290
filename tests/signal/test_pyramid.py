"""Laplacian pyramids: exact reconstruction with every kernel, and skipping with perfect ones."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import arrn
from arrn.signal import LaplacianPyramid, WhittakerShannon, resample
from strategies import KERNELS, PERFECT, grids, ladders


@given(st.data(), st.sampled_from(KERNELS), st.integers(1, 3))
def test_reconstruction(data: st.DataObject, kernel: arrn.signal.Kernel, ndim: int) -> None:
    ladder = data.draw(ladders(ndim))
    pyramid = LaplacianPyramid(ladder, kernel)
    x = torch.randn(2, 2, *data.draw(grids(ndim)), dtype=torch.float64)
    diffs, low = pyramid.decompose(x)
    assert [tuple(diff.shape[2:]) for diff in diffs] == list(ladder[:-1])
    assert tuple(low.shape[2:]) == ladder[-1]
    smoothed = resample(x, ladder[0], kernel)
    for level, grid in enumerate(ladder):
        assert torch.allclose(pyramid.reconstruct(diffs, low, level), smoothed, rtol=0, atol=1e-12)
        if level + 1 < len(ladder):
            assert tuple(smoothed.shape[2:]) == grid
            smoothed = resample(smoothed, ladder[level + 1], kernel)


@given(st.data(), st.sampled_from(PERFECT), st.integers(1, 3))
def test_low_resolution_skips_the_differences_above_it(
    data: st.DataObject, kernel: WhittakerShannon, ndim: int
) -> None:
    ladder = data.draw(ladders(ndim))
    pyramid = LaplacianPyramid(ladder, kernel)
    bound = data.draw(st.sampled_from(ladder))
    x = torch.randn(2, 2, *[data.draw(st.integers(1, n)) for n in bound], dtype=torch.float64)
    level = pyramid.level(x)
    diffs, low = pyramid.decompose(x)
    for skipped in diffs[:level]:
        assert float(skipped.abs().max()) < 1e-12
    kept, same_low = pyramid.decompose(x, level=level)
    assert len(kept) == len(diffs) - level
    for a, b in zip([*kept, same_low], [*diffs[level:], low], strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)
    whole = pyramid.reconstruct(kept, same_low)
    assert torch.allclose(whole, resample(x, ladder[0], kernel), rtol=0, atol=1e-12)


def test_top_is_the_signal_itself_on_its_own_grid() -> None:
    x = torch.randn(1, 1, 8, 8, dtype=torch.float64)
    for name in ("perfect", "fair", "poor"):
        pyramid = LaplacianPyramid((8,), name)
        assert torch.equal(pyramid.decompose(x)[1], x)


def test_plain_sizes_fit_any_number_of_axes() -> None:
    pyramid = LaplacianPyramid((8, 4))
    for ndim in (1, 2, 3):
        diffs, low = pyramid.decompose(torch.rand(1, 1, *[8] * ndim))
        assert diffs[0].shape[2:] == (8,) * ndim
        assert low.shape[2:] == (4,) * ndim


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LaplacianPyramid(()), "at least one size"),
        (lambda: LaplacianPyramid(32), "a ladder is a sequence of sizes such as (32, 16, 8), got 32"),
        (lambda: LaplacianPyramid((8, 8)), "a ladder must decrease: 8 follows 8"),
        (lambda: LaplacianPyramid((8, 12, 4)), "12 follows 8"),
        (lambda: LaplacianPyramid(((8, 4), (4, 6))), "4x6 follows 8x4"),
        (lambda: LaplacianPyramid((8, float("nan"))), "got nan"),
        (lambda: LaplacianPyramid((8, 4)).decompose(torch.rand(1, 1, 8), level=2), "level must be from 0 to 1, got 2"),
        (lambda: LaplacianPyramid((8, 4)).reconstruct([], torch.rand(1, 1, 3)), "on the grid (4,), got (3,)"),
        (lambda: LaplacianPyramid((4,)).reconstruct([torch.rand(1, 1, 4)], torch.rand(1, 1, 4)), "has 0 differences"),
    ],
)
def test_bad_pyramids_are_refused(call, message: str) -> None:
    with pytest.raises(arrn.ArrnError) as caught:
        call()
    assert message in str(caught.value)
