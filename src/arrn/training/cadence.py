"""When a run writes its checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Cadence"]

# Short epochs share a checkpoint: writing one takes as long as a hundred steps of a fast GPU. Long ones have several.
SECONDS_BETWEEN_EPOCHS = 30.0
SECONDS_WITHIN_AN_EPOCH = 600.0


class Cadence:
    """Tells after which steps a checkpoint is due.

    Args:
        per_epoch: steps in an epoch.
        every: epochs between checkpoints, a part of one if wished; None is after an epoch when the last checkpoint
            is half a minute old, and in the middle of one when it is ten minutes old.
        clock: seconds.

    >>> seconds = iter([0, 20, 40, 45, 700]).__next__
    >>> cadence = Cadence(per_epoch=10, every=None, clock=seconds)
    >>> cadence.due(10), cadence.due(20), cadence.due(25), cadence.due(26)
    (False, True, False, True)
    """

    def __init__(self, per_epoch: int, every: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_epoch = per_epoch
        self._interval = None if every is None else max(1, round(every * per_epoch))
        self._clock = clock
        self._last = clock()

    @property
    def counts_steps(self) -> bool:
        """Whether steps alone decide, and not the clock."""
        return self._interval is not None

    def due(self, done: int) -> bool:
        """Whether to write one after `done` steps of the run."""
        if self._interval is not None:
            return done % self._interval == 0
        now = self._clock()
        limit = SECONDS_WITHIN_AN_EPOCH if done % self._per_epoch else SECONDS_BETWEEN_EPOCHS
        if now - self._last < limit:
            return False
        self._last = now
        return True
