"""The Wilson interval against scipy's, and where it must lie."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from arrn.evaluation import wilson_interval

counts = st.integers(1, 20_000).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total)))


@given(counts)
def test_it_is_scipys(count: tuple[int, int]) -> None:
    reference = binomtest(*count).proportion_ci(0.95, method="wilson")
    assert wilson_interval(*count) == pytest.approx((reference.low, reference.high), abs=1e-12)


@given(counts)
def test_it_lies_in_0_to_1_around_the_share(count: tuple[int, int]) -> None:
    low, high = wilson_interval(*count)
    assert 0 <= low <= count[0] / count[1] <= high <= 1


@pytest.mark.parametrize("count", [(0, 0), (3, 2), (-1, 5)])
def test_impossible_counts_are_refused(count: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="0 <= correct <= total"):
        wilson_interval(*count)
