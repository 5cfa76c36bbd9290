"""Numbers as pages spell them: resolutions, counts, accuracies with their intervals; results as lines of a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from arrn.pages.charts import Series, Value


def spell_resolution(resolution: int | None, axes: int = 2, window: float | None = None) -> str:
    """What samples of a resolution are called: 32x32 for images, a rate for sound of `window` seconds.

    >>> spell_resolution(32), spell_resolution(4000, axes=1, window=1.0), spell_resolution(None)
    ('32x32', '4000 Hz', 'as they come')
    """
    if resolution is None:
        return "as they come"
    if axes == 1:
        return f"{resolution} samples" if window is None else f"{resolution / window:g} Hz"
    return "x".join([str(resolution)] * axes)


def spell_count(number: float) -> str:
    """A large number in three digits.

    >>> spell_count(337_400_000), spell_count(1_133_000_000), spell_count(5_120)
    ('337 million', '1.13 billion', '5.12 thousand')
    """
    for size, name in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if number >= 0.9995 * size:
            share = number / size
            return f"{share:.{max(0, 3 - len(str(int(share))))}f} {name}"
    return f"{number:.0f}"


def accuracy_text(result: Mapping[str, Any]) -> str:
    """An accuracy with its interval, in words.

    >>> accuracy_text({"accuracy": 0.5, "interval": [0.4, 0.6]})
    '50.0%, between 40.0 and 60.0'
    """
    low, high = result["interval"]
    return f"{100 * result['accuracy']:.1f}%, between {100 * low:.1f} and {100 * high:.1f}"


def series_of(label: str, results: Sequence[Mapping[str, Any]]) -> Series:
    """Accuracies of an evaluation as a line."""
    return Series(
        label,
        tuple(
            Value(r["resolution"], 100 * r["accuracy"], 100 * r["interval"][0], 100 * r["interval"][1]) for r in results
        ),
    )
