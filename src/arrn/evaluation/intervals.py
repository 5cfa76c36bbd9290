"""How sure an accuracy is: the Wilson score interval of a proportion."""

from __future__ import annotations

import math

__all__ = ["wilson_interval"]


def wilson_interval(correct: int, total: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """The interval in which the true proportion lies; z = 1.96 is for 95%.

    Wilson (1927). Unlike the normal approximation it stays within [0, 1] and is right near both ends.

    >>> tuple(round(bound, 4) for bound in wilson_interval(81, 100))
    (0.7222, 0.8749)
    """
    if total < 1 or not 0 <= correct <= total:
        raise ValueError(f"expected 0 <= correct <= total and total of at least 1, got {correct} of {total}")
    share = correct / total
    spread = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    centre = share + z * z / (2 * total)
    # The bounds at 0 and at 1 are exact, but for rounding.
    return min(share, max(0.0, (centre - spread) / scale)), max(share, min(1.0, (centre + spread) / scale))
