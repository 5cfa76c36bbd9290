"""What happens after a step, on which all processes of a team must agree: a checkpoint, an end, or neither."""

from __future__ import annotations

import signal
from typing import NamedTuple

from arrn.teamwork import Team
from arrn.training.cadence import Cadence
from arrn.training.interruption import StopRequest

__all__ = ["Council", "Decision"]

_STEPS_BETWEEN_WORDS = 10  # each word waits for the slowest process
_DUE = 1000  # above any signal's number


class Decision(NamedTuple):
    """Whether a checkpoint is written, and the signal that asks to stop after it."""

    checkpoint: bool
    signal: str | None


class Council:
    """Decides after each step, in a team together: a signal, and the clock, may reach one process before another.

    Args:
        team: who has to agree.
        stop: whether this process was asked to stop.
        cadence: when checkpoints are due; in a team the leader's clock counts.
        per_epoch: steps in an epoch.
    """

    def __init__(self, team: Team, stop: StopRequest, cadence: Cadence, per_epoch: int) -> None:
        self._team, self._stop, self._cadence, self._per_epoch = team, stop, cadence, per_epoch

    def after(self, done: int) -> Decision:
        """What to do after `done` steps of the run; every process asks after the same ones."""
        if self._team.size == 1:
            asked = self._stop.signal
            return Decision(self._cadence.due(done) or asked is not None, asked)
        counted = self._cadence.counts_steps and self._cadence.due(done)  # all come to the same answer
        if done % self._per_epoch and done % _STEPS_BETWEEN_WORDS:
            return Decision(counted, None)
        word = 0 if self._stop.signal is None else int(signal.Signals[self._stop.signal])
        if self._team.leads and not self._cadence.counts_steps and self._cadence.due(done):
            word += _DUE
        told = self._team.most(word)
        number = self._team.most(word % _DUE)
        asked = signal.Signals(number).name if number else None
        return Decision(counted or told >= _DUE or asked is not None, asked)
