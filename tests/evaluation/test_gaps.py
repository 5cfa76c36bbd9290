"""The gap that adaptation makes: its statistics over resolutions."""

import pytest

from arrn.errors import ArrnError
from arrn.evaluation import adaptation_gap


def test_statistics_are_those_computed_by_hand() -> None:
    gap = adaptation_gap({32: 0.8, 16: 0.72, 8: 0.56}, {32: 0.8, 16: 0.7, 8: 0.6})
    # Gaps of 0, +2 and -4 points.
    assert gap.mean == pytest.approx(-0.02 / 3)
    assert gap.deviation == pytest.approx((56 / 9) ** 0.5 / 100)
    assert gap.cells() == ["-0.67", "2.49", "-4.00", "+2.00"]


def test_equal_accuracies_have_no_gap() -> None:
    assert adaptation_gap({8: 0.1 + 0.2}, {8: 0.3}).cells() == ["0.00"] * 4


def test_accuracies_at_other_resolutions_cannot_be_compared() -> None:
    with pytest.raises(ArrnError, match=r"same resolutions, got \[8\] and \[8, 16\]"):
        adaptation_gap({8: 0.5}, {8: 0.5, 16: 0.5})
