"""The tree of decisions by hand and as laws, and the gap that adaptation makes."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrn.errors import ArrnError
from arrn.evaluation import Combination, adaptation_gap, check_dual_effect, decision_tree, effect_grows

KERNELS = ("perfect", "fair", "poor")
COMBINATIONS = [Combination(k, d, a) for k, d, a in itertools.product(KERNELS, (True, False), (True, False))]

# By hand: perfect 0.8 and 0.6; fair 0.77/0.73 and 0.49/0.51; poor 0.66/0.54 and 0.27/0.33.
ACCURACIES = dict(zip(COMBINATIONS, [0.8, 0.8, 0.6, 0.6, 0.77, 0.73, 0.49, 0.51, 0.66, 0.54, 0.27, 0.33], strict=True))

some_accuracies = st.lists(st.floats(0.01, 1), min_size=12, max_size=12).map(
    lambda values: dict(zip(COMBINATIONS, values, strict=True))
)


def leaves(accuracies: dict[Combination, float]) -> dict[Combination, float]:
    return {verdict.combination: verdict.factor for verdict in check_dual_effect(decision_tree(accuracies))}


def test_factors_are_those_computed_by_hand() -> None:
    tree = decision_tree(ACCURACIES)
    # Kernels: means 0.7, 0.625 and 0.45, of 1.775 / 3 in all.
    assert tree.mean == pytest.approx(1.775 / 3)
    assert [node.choice for node in tree.children] == list(KERNELS)
    assert [node.factor for node in tree.children] == pytest.approx([2.1 / 1.775, 1.875 / 1.775, 1.35 / 1.775])
    # Dropout, given the poor kernel: 0.6 and 0.3 of 0.45.
    poor = tree.children[2]
    assert [(node.choice, pytest.approx(node.factor)) for node in poor.children] == [(True, 4 / 3), (False, 2 / 3)]
    # Adaptation, given the poor kernel and dropout: 0.66 and 0.54 of 0.6; without dropout 0.27 and 0.33 of 0.3.
    assert [leaf.factor for node in poor.children for leaf in node.children] == pytest.approx([1.1, 0.9, 0.9, 1.1])


def test_the_rule_is_checked_leaf_by_leaf() -> None:
    verdicts = {verdict.combination: verdict for verdict in check_dual_effect(decision_tree(ACCURACIES))}
    assert [verdicts[c].above for c in COMBINATIONS] == [True, False, False, True] * 3
    assert [verdicts[c].holds for c in COMBINATIONS] == [None] * 4 + [True] * 8
    contrary = ACCURACIES | {Combination("fair", True, True): 0.70}
    verdicts = {verdict.combination: verdict for verdict in check_dual_effect(decision_tree(contrary))}
    assert [verdicts[Combination("fair", True, adapt)].holds for adapt in (True, False)] == [False, False]


def test_the_effect_grows_with_the_kernels_error_or_does_not() -> None:
    assert effect_grows(decision_tree(ACCURACIES), dropout=True)
    assert effect_grows(decision_tree(ACCURACIES), dropout=False)
    contrary = ACCURACIES | {Combination("perfect", True, True): 0.95}
    assert not effect_grows(decision_tree(contrary), dropout=True)
    assert effect_grows(decision_tree(contrary), dropout=False)
    flat = ACCURACIES | {Combination(kernel, True, adapt): 0.7 for kernel in KERNELS for adapt in (True, False)}
    assert effect_grows(decision_tree(flat), dropout=True) is None
    opposed = flat | {Combination("poor", True, True): 0.6}  # further from 1, but on the other side
    assert effect_grows(decision_tree(opposed), dropout=True) is False


@given(some_accuracies)
def test_factors_along_a_path_lead_from_the_whole_mean_to_the_leaf(accuracies: dict[Combination, float]) -> None:
    tree = decision_tree(accuracies)
    for kernel in tree.children:
        for dropout in kernel.children:
            for leaf in dropout.children:
                combination = Combination(str(kernel.choice), bool(dropout.choice), bool(leaf.choice))
                product = tree.mean * kernel.factor * dropout.factor * leaf.factor
                assert product == pytest.approx(accuracies[combination])


@given(some_accuracies)
def test_the_factors_of_siblings_average_to_one(accuracies: dict[Combination, float]) -> None:
    tree = decision_tree(accuracies)
    inner = [tree, *tree.children, *(node for kernel in tree.children for node in kernel.children)]
    for node in inner:
        assert math.fsum(child.factor for child in node.children) == pytest.approx(len(node.children))


@given(some_accuracies, st.floats(0.1, 1))
def test_factors_do_not_depend_on_the_scale_of_accuracy(accuracies: dict[Combination, float], scale: float) -> None:
    scaled = {combination: scale * accuracy for combination, accuracy in accuracies.items()}
    assert leaves(scaled) == pytest.approx(leaves(accuracies))


def test_what_cannot_be_a_tree_is_refused() -> None:
    few = {c: a for c, a in ACCURACIES.items() if c != Combination("fair", False, True)}
    with pytest.raises(ArrnError, match="missing: fair kernel without dropout with adaptation"):
        decision_tree(few)
    with pytest.raises(ArrnError, match="missing: all of them"):
        decision_tree({})
    with pytest.raises(ArrnError, match=r"above 0 and at most 1, got 71.0 for poor kernel with dropout"):
        decision_tree(ACCURACIES | {Combination("poor", True, True): 71.0})


def test_the_statistics_of_a_gap_are_those_computed_by_hand() -> None:
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
