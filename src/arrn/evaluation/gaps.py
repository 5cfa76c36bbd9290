"""How far accuracy with adaptation and accuracy without it lie apart, over all resolutions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, pstdev

from arrn.errors import ArrnError

__all__ = ["AdaptationGap", "adaptation_gap"]


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
