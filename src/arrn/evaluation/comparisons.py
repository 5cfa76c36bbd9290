"""What accuracies say of adaptation: the paper's decision tree and its rule, and the gap that adaptation makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, pstdev

from arrn.errors import ArrnError

_DECIDES_NOTHING = 5e-4  # factors this close to 1 are 1.000 in a figure


@dataclass(frozen=True, order=True)
class Combination:
    """One way to train and run an ARRN.

    Attributes:
        kernel: the name of the smoothing kernel.
        dropout: whether it was trained with Laplacian dropout.
        adapt: whether levels above the input's resolution are skipped.
    """

    kernel: str
    dropout: bool
    adapt: bool

    def __str__(self) -> str:
        with_dropout, with_adaptation = ("with" if choice else "without" for choice in (self.dropout, self.adapt))
        return f"{self.kernel} kernel {with_dropout} dropout {with_adaptation} adaptation"


@dataclass(frozen=True)
class Decision:
    """A node of the tree.

    Attributes:
        choice: a kernel's name, or whether dropout (second level) or adaptation (third) is used; "" at the root.
        mean: the average accuracy over the combinations below.
        factor: `mean` divided by the parent's; 1 at the root.
        children: the next decisions; none at a leaf.
    """

    choice: str | bool
    mean: float
    factor: float
    children: tuple[Decision, ...] = ()


def decision_tree(accuracies: Mapping[Combination, float]) -> Decision:
    """The tree of kernels, dropout and adaptation; kernels in the order given, best first.

    Args:
        accuracies: of every combination, averaged over resolutions (and data sets). All four
            combinations of each kernel are needed.

    >>> means = {(True, True): 0.66, (True, False): 0.54, (False, True): 0.36, (False, False): 0.44}
    >>> tree = decision_tree({Combination("poor", *how): mean for how, mean in means.items()})
    >>> [(node.choice, round(node.factor, 3)) for node in tree.children[0].children]
    [(True, 1.2), (False, 0.8)]
    >>> [round(leaf.factor, 3) for node in tree.children[0].children for leaf in node.children]
    [1.1, 0.9, 0.9, 1.1]
    """
    kernels = list(dict.fromkeys(combination.kernel for combination in accuracies))
    wanted = [Combination(k, dropout, adapt) for k in kernels for dropout in (True, False) for adapt in (True, False)]
    missing = [str(combination) for combination in wanted if combination not in accuracies]
    if missing or not kernels:
        raise ArrnError(f"a decision tree needs all combinations, missing: {'; '.join(missing) or 'all of them'}")
    for combination, accuracy in accuracies.items():
        if not 0 < accuracy <= 1:
            raise ArrnError(f"an accuracy is above 0 and at most 1, got {accuracy} for {combination}")

    def node(choice: str | bool, below: list[Combination], depth: int, parent: float | None) -> Decision:
        mean = fmean(accuracies[combination] for combination in below)
        groups: dict[str | bool, list[Combination]] = {}
        for combination in below if depth < 3 else []:
            key = (combination.kernel, combination.dropout, combination.adapt)[depth]
            groups.setdefault(key, []).append(combination)
        children = tuple(node(key, group, depth + 1, mean) for key, group in groups.items())
        return Decision(choice, mean, 1.0 if parent is None else mean / parent, children)

    return node("", wanted, 0, None)


@dataclass(frozen=True)
class Verdict:
    """Whether a leaf behaves as theory wants.

    Attributes:
        combination: the path to the leaf.
        factor: of the leaf.
        above: whether theory wants it above 1 (dropout and adaptation both used, or neither) or below.
        holds: whether it is so; None where the factor is 1 within the tolerance, as a perfect kernel has it.
    """

    combination: Combination
    factor: float
    above: bool
    holds: bool | None


def check_dual_effect(tree: Decision, tolerance: float = _DECIDES_NOTHING) -> list[Verdict]:
    """The paper's rule, leaf by leaf: factors above 1 where dropout and adaptation agree, below 1 where not.

    A network trained with dropout has met the errors of skipped levels and makes up for them, so adaptation
    suits it; one trained without has only met all levels, so running all suits it.

    Args:
        tree: from `decision_tree`.
        tolerance: factors this close to 1 decide nothing.
    """
    verdicts = []
    for kernel in tree.children:
        for dropout in kernel.children:
            for leaf in dropout.children:
                combination = Combination(str(kernel.choice), bool(dropout.choice), bool(leaf.choice))
                above = combination.dropout == combination.adapt
                holds = None if abs(leaf.factor - 1) <= tolerance else (leaf.factor > 1) == above
                verdicts.append(Verdict(combination, leaf.factor, above, holds))
    return verdicts


def effect_grows(tree: Decision, dropout: bool, tolerance: float = _DECIDES_NOTHING) -> bool | None:
    """Whether the poorer the kernel, the more adaptation helps (after dropout) or harms (without it), as theory wants.

    None where no factor differs from 1 by more than the tolerance.
    """
    gaps = [
        leaf.factor - 1 if dropout else 1 - leaf.factor
        for kernel in tree.children
        for node in kernel.children
        for leaf in node.children
        if node.choice == dropout and leaf.choice is True
    ]
    return gaps == sorted(gaps) if max(map(abs, gaps)) > tolerance else None


@dataclass(frozen=True)
class AdaptationGap:
    """Statistics over resolutions of the adapted accuracy less the full one, as shares of 1."""

    mean: float
    deviation: float
    lowest: float
    highest: float

    def cells(self) -> list[str]:
        """As a row of a table, in percentage points.

        >>> AdaptationGap(-0.0123, 0.02, -0.05, 0.001).cells()
        ['-1.23', '2.00', '-5.00', '+0.10']
        """
        mean, lowest, highest = (_signed(100 * value) for value in (self.mean, self.lowest, self.highest))
        return [mean, f"{100 * self.deviation:.2f}", lowest, highest]


def adaptation_gap(adapted: Mapping[int, float], full: Mapping[int, float]) -> AdaptationGap:
    """Compares accuracies by resolution; both must have the same resolutions.

    >>> adaptation_gap({32: 0.8, 16: 0.7}, {32: 0.8, 16: 0.6}).highest
    0.1
    """
    if not adapted or set(adapted) != set(full):
        raise ArrnError(
            f"accuracies with and without adaptation need the same resolutions, got {sorted(adapted)} and "
            f"{sorted(full)}"
        )
    # Accuracies are counts of images: rounding far below one image takes floating point's noise away.
    gaps = [round(adapted[size] - full[size], 12) for size in adapted]
    return AdaptationGap(fmean(gaps), pstdev(gaps), min(gaps), max(gaps))


def _signed(points: float) -> str:
    # Adding 0 makes minus zero, which rounding may leave, plain zero.
    rounded = round(points, 2) + 0.0
    return f"{rounded:+.2f}" if rounded else "0.00"
