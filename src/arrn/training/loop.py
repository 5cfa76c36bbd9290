"""The training loop: epochs of steps, checkpoints when they are due, and a clean stop when a signal asks for it."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple, Protocol

from torch import nn

from arrn.data.batches import Batches
from arrn.errors import ArrnError, RunError
from arrn.nn.introspection import first_not_finite
from arrn.teamwork import Team
from arrn.training.best import BestEpoch
from arrn.training.checkpoints import Checkpoint, Checkpoints, restore_state, state_tensors
from arrn.training.log import Log
from arrn.training.step import TrainingStep

# Short epochs share a checkpoint: writing one takes as long as a hundred steps of a fast GPU. Long ones have several.
SECONDS_BETWEEN_EPOCHS = 30.0
SECONDS_WITHIN_AN_EPOCH = 600.0
_SECONDS_BETWEEN_LOOKS = 0.5  # each look at the loss waits for the device, so looks are rare
_STEPS_BETWEEN_DECISIONS = 10  # of a team: in each decision, every process waits for the slowest


class Watcher(Protocol):
    """Whoever shows the progress of a run."""

    def samples_seen(self, what: str, done: int, total: int) -> None:
        """Before training, now and then: `done` of `total` samples were looked at, or read; `what` says which."""

    def epoch_begins(self, epoch: int, epochs: int, steps: int, first: int) -> None:
        """Epoch `epoch` (from 1) of `epochs` begins, at step `first` of its `steps`."""

    def step_done(self, step: int, loss: float, accuracy: float, examples_per_second: float) -> None:
        """Now and then: `step` steps of the epoch are done."""

    def epoch_ends(self, entry: Mapping[str, Any]) -> None:
        """An epoch is done; `entry` is what the log says of it."""


class StopRequest:
    """Whether a signal asked the run to stop, and which."""

    def __init__(self) -> None:
        self.signal: str | None = None


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Within it, the first SIGINT or SIGTERM is noted; a second one acts as it does by default."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request  # only the main thread may set handlers
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: FrameType | None) -> None:
        request.signal = signal.Signals(number).name
        for each, handler in previous.items():
            signal.signal(each, handler)

    for number in previous:
        signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class CheckpointSchedule:
    """Tells after which steps a checkpoint is due.

    Args:
        per_epoch: steps in an epoch.
        every: epochs between checkpoints, a part of one if wished; None is after an epoch when the last checkpoint
            is half a minute old, and in the middle of one when it is ten minutes old.
        clock: seconds.

    >>> seconds = iter([0, 20, 40, 45, 700]).__next__
    >>> schedule = CheckpointSchedule(per_epoch=10, every=None, clock=seconds)
    >>> schedule.due(10), schedule.due(20), schedule.due(25), schedule.due(26)
    (False, True, False, True)
    """

    def __init__(self, per_epoch: int, every: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_epoch = per_epoch
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
        limit = SECONDS_WITHIN_AN_EPOCH if done % self.per_epoch else SECONDS_BETWEEN_EPOCHS
        if now - self._last < limit:
            return False
        self._last = now
        return True


class Decision(NamedTuple):
    """Whether a checkpoint is written, and the signal that asks to stop after it."""

    checkpoint: bool
    signal: str | None


class Decider:
    """Decides after each step, for a team alike: a signal, and the clock, may reach one process before another.

    Args:
        team: the processes that have to agree.
        stop: whether this process was asked to stop.
        schedule: when checkpoints are due; in a team the leader's clock counts.
    """

    def __init__(self, team: Team, stop: StopRequest, schedule: CheckpointSchedule) -> None:
        self._team, self._stop, self._schedule = team, stop, schedule

    def after(self, done: int) -> Decision:
        """What to do after `done` steps of the run; every process asks after the same ones."""
        if self._team.size == 1:
            asked = self._stop.signal
            return Decision(self._schedule.due(done) or asked is not None, asked)
        counted = self._schedule.counts_steps and self._schedule.due(done)  # all come to the same answer
        if done % self._schedule.per_epoch and done % _STEPS_BETWEEN_DECISIONS:
            return Decision(counted, None)
        timed = self._team.leads and not self._schedule.counts_steps and self._schedule.due(done)
        due = bool(self._team.most(int(timed))) or counted
        number = self._team.most(0 if self._stop.signal is None else int(signal.Signals[self._stop.signal]))
        asked = signal.Signals(number).name if number else None
        return Decision(due or asked is not None, asked)


def resume_from(step: TrainingStep, checkpoint: Checkpoint) -> None:
    """Puts a step where the checkpoint was."""
    restore_state(step, checkpoint.tensors)
    totals: Any = checkpoint.facts.get("totals")
    if not _are_totals(totals):
        raise ArrnError(f"{checkpoint.file_name} does not tell how far its epoch was: totals are {totals!r:.80}")
    if step.team.leads:  # the totals of all: one process goes on counting from them
        step.reset(float(totals[0]), int(totals[1]), int(totals[2]))
    else:
        step.reset()


def train(
    step: TrainingStep,
    batches: Batches,
    epochs: int,
    *,
    checkpoints: Checkpoints,
    log: Log,
    stop: StopRequest,
    start: Checkpoint | None = None,
    checkpoint_every: float | None = None,
    validate: Callable[[nn.Module], Mapping[str, float]] | None = None,
    best: BestEpoch | None = None,
    watcher: Watcher | None = None,
) -> None:
    """Trains to the end, or until asked to stop.

    Args:
        step: the network and its optimiser, at `start`.
        batches: the training set.
        epochs: of the whole run.
        checkpoints: where the state is kept.
        log: gets an entry for each epoch.
        stop: looked at after each step.
        start: where to go on from; the beginning by default.
        checkpoint_every: epochs between checkpoints; by default as `CheckpointSchedule` says.
        validate: called after each epoch; its numbers go into the log.
        best: keeps the weights of the epoch that `validate` found best.
        watcher: told of the progress.

    Raises:
        RunError: when asked to stop (a checkpoint is written first), when the loss is no longer a
            number, or when a checkpoint cannot be written.
    """
    per_epoch = len(batches)
    decider = Decider(step.team, stop, CheckpointSchedule(per_epoch, checkpoint_every))
    done, spent = 0, 0.0
    if start is not None:
        _check_place(start, batches, epochs)
        done, spent = start.epoch * per_epoch + start.step, _seconds_spent(start)
    step.model.train()
    for epoch in range(done // per_epoch, epochs):
        first = done % per_epoch
        if first == 0:
            step.reset()
        if watcher is not None:
            watcher.epoch_begins(epoch + 1, epochs, per_epoch, first)
        own_before, all_before = step.totals[2], step.team_totals[2]
        began = looked = time.monotonic()
        for batch in batches.epoch(epoch, first):
            step(batch, done)
            done += 1
            if watcher is not None and time.monotonic() - looked > _SECONDS_BETWEEN_LOOKS:
                loss, correct, seen = step.totals
                looked = time.monotonic()
                rate = step.team.size * (seen - own_before) / (looked - began)
                watcher.step_done(done - epoch * per_epoch, loss / seen, correct / seen, rate)
            inside = done % per_epoch
            if inside and (decision := decider.after(done)).checkpoint:
                _check_loss(step.team_totals[0], epoch)
                _check_weights(step, epoch)
                _write(checkpoints, step, batches, epoch, inside, spent + time.monotonic() - began)
                _stop_if_asked(decision.signal, f"epoch {epoch + 1}, step {inside} of {per_epoch}")
        loss, correct, seen = step.team_totals
        _check_loss(loss, epoch)
        seconds = max(time.monotonic() - began, 1e-6)
        entry: dict[str, Any] = {
            "epoch": epoch + 1,
            "loss": loss / seen,
            "accuracy": correct / seen,
            "learning_rate": float(step.optimizer.param_groups[0]["lr"]),
            "seconds": round(spent + seconds, 3),
            "examples_per_second": round((seen - all_before) / seconds, 1),  # of late: machines may have changed
        }
        spent = 0.0  # the next epoch is all this process's
        if validate is not None:
            entry |= validate(step.result)
            step.model.train()
        if step.team.leads:
            log.write(entry)
            if best is not None:
                best.offer(entry, step.result)
        if watcher is not None:
            watcher.epoch_ends(entry)
        decision = decider.after(done)  # once: a signal that comes later would find no checkpoint
        if epoch + 1 == epochs or decision.checkpoint:
            _check_weights(step, epoch)
            step.reset()
            _write(checkpoints, step, batches, epoch + 1)
            if best is not None and step.team.leads:
                best.prune(checkpoints.epochs())
        if epoch + 1 < epochs:
            _stop_if_asked(decision.signal, f"the end of epoch {epoch + 1}")


def _check_place(start: Checkpoint, batches: Batches, epochs: int) -> None:
    if not (start.epoch <= epochs and start.step < len(batches)):
        raise ArrnError(
            f"{start.file_name} does not belong to a run of {epochs} epochs of {len(batches)} steps: it is after epoch "
            f"{start.epoch}, step {start.step}"
        )
    before, now = start.facts.get("counts"), list(batches.counts)
    if before != now:
        raise ArrnError(
            f"the training set has changed since {start.file_name}: it had {before} samples, by size, and now has {now}"
        )


def _seconds_spent(start: Checkpoint) -> float:
    """How long the epoch that a checkpoint is in had taken; 0 in those from before it was written down."""
    seconds = start.facts.get("seconds", 0.0)
    if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise ArrnError(f"{start.file_name} does not tell how long its epoch took: seconds are {seconds!r}")
    return float(seconds)


def _are_totals(totals: Any) -> bool:
    """Whether these are a sum of losses, as float32 holds it, and two counts."""
    if not isinstance(totals, list | tuple) or len(totals) != 3:
        return False
    bounds = ((-3e38, 3e38), (0, 2**53), (0, 2**53))
    return all(
        isinstance(value, int | float) and low <= value <= high
        for value, (low, high) in zip(totals, bounds, strict=True)
    )


def _check_loss(loss: float, epoch: int) -> None:
    if not math.isfinite(loss):
        raise RunError(
            f"the loss became {loss} in epoch {epoch + 1}: a lower learning rate may help; the checkpoints "
            "written before it are kept"
        )


def _check_weights(step: TrainingStep, epoch: int) -> None:
    """Refuses weights that a last step made infinite: the loss is that of the weights before."""
    name = first_not_finite(step.model.state_dict())
    if step.team.most(int(name is not None)):
        raise RunError(
            f"the weights are no longer finite in epoch {epoch + 1}{'' if name is None else f' ({name})'}: a lower "
            "learning rate may help; the checkpoints written before it are kept"
        )


def _write(
    checkpoints: Checkpoints,
    step: TrainingStep,
    batches: Batches,
    epoch: int,
    inside: int = 0,
    seconds: float = 0.0,
) -> None:
    """Writes a checkpoint `inside` steps after `epoch` epochs, `seconds` after the last of those; the leader does."""
    facts = {"totals": step.team_totals, "counts": list(batches.counts), "seconds": round(seconds, 3)}
    if step.team.leads:
        checkpoints.write(Checkpoint(epoch, inside, state_tensors(step), facts))


def _stop_if_asked(signal: str | None, where: str) -> None:
    if signal:
        raise RunError(
            f"stopped by {signal} at {where}; a checkpoint is written: go on with --resume, or end the run there with "
            "`arrn finish`"
        )
