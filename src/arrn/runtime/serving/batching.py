"""Inputs that enter the network at one level, gathered for a moment and run together by a thread of their own."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from ...errors import ArrnError

Signal: TypeAlias = np.ndarray[Any, Any]
Run: TypeAlias = Callable[[int, Sequence[Signal]], np.ndarray[Any, Any]]
"""From a level and the signals that enter there to their probabilities, shape (signals, classes)."""

_SICK_AFTER = 3  # batches in a row that gave no answer at all
_log = logging.getLogger(__name__)


class QueueFullError(Exception):
    """The batcher holds as many signals, or bytes of them, as it may."""


class StoppedError(Exception):
    """The batcher takes no more signals."""


class NetworkError(Exception):
    """The network raised an error for a signal, or its answer is no number. The message is one sentence."""


@dataclass(frozen=True)
class Answered:
    """The network's answer to one signal.

    Attributes:
        probabilities: one for each class.
        level: at which the signal entered.
        together: signals that the network ran with it, itself included.
        queued: seconds that it waited for the network.
        computed: seconds that the network took, for all signals together.
    """

    probabilities: np.ndarray[Any, Any]
    level: int
    together: int
    queued: float
    computed: float


@dataclass(frozen=True)
class _Waiting:
    signal: Signal
    weight: int
    future: Future[Answered]
    since: float


@dataclass
class _Line:
    """What waits for one level, and the seconds the network has spent on that level."""

    waiting: deque[_Waiting] = field(default_factory=deque)
    spent: float = 0.0


class Batcher:
    """Runs a network on signals that arrive one at a time, from any thread.

    The network runs on those of one level together, as soon as `most` of them wait or the first one has waited for
    `delay`. Where several levels are ready, the one goes first on which the network has spent the least time since
    it last had something waiting, so that many large signals do not hold up a small one, nor the other way round.

    A batch for which the network fails is run again one signal at a time: a signal that it cannot take fails alone,
    with a `NetworkError`, or with the `ArrnError` that the network raised for it.
    The threads go on after any failure. `healthy` turns false after three batches in a row without an answer, and
    true again with the next answer.

    Args:
        run: the network.
        delay: seconds that a signal may wait for others of its level. With 0, those that came while the network was
            busy still run together.
        most: signals of a batch.
        most_weight: of a batch of more than one signal, by the weights that `submit` is given.
        most_held: signals that may wait or run at once.
        most_bytes: of their data.
        workers: threads that run the network.
        on_batch: told the level, the number of signals and the seconds of each batch that was answered.
        clock: tells the seconds.

    >>> batcher = Batcher(lambda level, signals: np.array([[s.mean(), 1 - s.mean()] for s in signals]))
    >>> batcher.submit(0, np.full((3, 8, 8), 0.25)).result().probabilities
    array([0.25, 0.75])
    >>> batcher.close()
    """

    def __init__(
        self,
        run: Run,
        *,
        delay: float = 0.005,
        most: int = 32,
        most_weight: int = 2**22,
        most_held: int = 256,
        most_bytes: int = 2**30,
        workers: int = 1,
        on_batch: Callable[[int, int, float], None] = lambda level, count, seconds: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._on_batch, self._time = run, on_batch, clock
        self._delay, self._most, self._most_weight = delay, most, most_weight
        self._most_held, self._most_bytes = most_held, most_bytes
        self._lines: defaultdict[int, _Line] = defaultdict(_Line)
        self._changed = threading.Condition()
        self._stopping = False
        self._clock = 0.0  # what had been spent on the level that was served last
        self._held = self._bytes = self._failures = 0
        self._began: dict[int, float] = {}  # the worker's number to when its batch began
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"network-{number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, level: int, signal: Signal, weight: int = 1) -> Future[Answered]:
        """Puts a signal in line.

        Args:
            level: at which it enters.
            signal: of any size.
            weight: what it adds to a batch: the places of the grid on which it enters.

        A future that is cancelled before the network began with its signal costs no time.

        Raises:
            QueueFullError: where too many wait.
            StoppedError: after `close`.
        """
        future: Future[Answered] = Future()
        with self._changed:
            if self._stopping:
                raise StoppedError
            if self._held >= self._most_held or self._bytes + signal.nbytes > self._most_bytes:
                raise QueueFullError
            self._held += 1
            self._bytes += signal.nbytes
            line = self._lines[level]
            if not line.waiting:  # time that it did not use earlier gives it no claim
                line.spent = max(line.spent, self._clock)
            line.waiting.append(_Waiting(signal, weight, future, self._time()))
            self._changed.notify()
        return future

    @property
    def held(self) -> int:
        """The signals that wait or run."""
        return self._held

    @property
    def held_bytes(self) -> int:
        """The bytes of the signals that wait or run."""
        return self._bytes

    @property
    def healthy(self) -> bool:
        """Whether one of the last three batches was answered, at least in part."""
        return self._failures < _SICK_AFTER

    @property
    def longest_running(self) -> float:
        """Seconds since the oldest batch began that still runs; 0 where none does."""
        now = self._time()
        return max((now - began for began in list(self._began.values())), default=0.0)

    def close(self, patience: float | None = None) -> None:
        """Takes no more signals, answers those in line without further delay, and ends the threads.

        Args:
            patience: seconds to wait for the answers; what is still in line then fails with `StoppedError`.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        deadline = None if patience is None else time.monotonic() + patience
        for thread in self._threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        with self._changed:
            left = [entry for line in self._lines.values() for entry in line.waiting]
            self._lines.clear()
        for entry in left:
            if entry.future.set_running_or_notify_cancel():
                entry.future.set_exception(StoppedError())

    def _work(self, number: int) -> None:
        while True:
            taken = self._take(number)
            if taken is None:
                return
            level, entries, size = taken
            began = self._time()
            try:
                answers = self._answer(level, entries, began) if entries else 0
            except BaseException:  # of `on_batch`, say: a thread that ends would leave every later request waiting
                _log.exception("the batcher's own code failed")
                answers = 0
                for entry in entries:
                    if not entry.future.done():
                        entry.future.set_exception(NetworkError("the server failed on this batch"))
            with self._changed:
                self._began.pop(number, None)
                self._held -= size[0]
                self._bytes -= size[1]
                self._lines[level].spent += self._time() - began
                if entries:
                    self._failures = 0 if answers else self._failures + 1
                del taken, entries  # nothing is held while the next batch is waited for

    def _take(self, number: int) -> tuple[int, list[_Waiting], tuple[int, int]] | None:
        """Waits for a batch: its level, what is not cancelled of it, and the signals and bytes that it frees."""
        with self._changed:
            while True:
                now = self._time()
                lines = {level: line for level, line in self._lines.items() if line.waiting}
                ready = [level for level, line in lines.items() if self._until_ready(line, now) <= 0]
                if ready:
                    break
                if self._stopping and not lines:
                    return None
                soonest = min((self._until_ready(line, now) for line in lines.values()), default=None)
                self._changed.wait(soonest)
            level = min(ready, key=lambda level: (lines[level].spent, lines[level].waiting[0].since))
            self._clock = lines[level].spent
            entries: list[_Waiting] = []
            count = size = weight = 0
            waiting = lines[level].waiting
            while waiting and len(entries) < self._most:
                if entries and weight + waiting[0].weight > self._most_weight:
                    break
                entry = waiting.popleft()
                count, size = count + 1, size + entry.signal.nbytes
                if entry.future.set_running_or_notify_cancel():
                    entries.append(entry)
                    weight += entry.weight
            self._began[number] = now
            if any(line.waiting for line in lines.values()):
                self._changed.notify()  # for another worker
            return level, entries, (count, size)

    def _until_ready(self, line: _Line, now: float) -> float:
        if self._stopping or len(line.waiting) >= self._most:
            return 0.0
        return line.waiting[0].since + self._delay - now

    def _answer(self, level: int, entries: Sequence[_Waiting], began: float) -> int:
        """Answers what the network can answer, and returns for how many signals it worked."""
        try:
            rows = self._probabilities(level, [entry.signal for entry in entries])
        except BaseException as error:  # SystemExit in an extension must not end the thread either
            if len(entries) > 1:
                _log.warning("a batch of %d failed (%s); its inputs are run one at a time", len(entries), _name(error))
                return sum(self._answer(level, [entry], began) for entry in entries)
            if isinstance(error, ArrnError):  # of a network that is well: it says what is wrong with the input
                entries[0].future.set_exception(error)
                return 1
            _log.error("the network failed on one input", exc_info=error)
            entries[0].future.set_exception(NetworkError(f"the network failed on this input ({_name(error)})"))
            return 0
        computed = self._time() - began
        self._on_batch(level, len(entries), computed)
        answers = 0
        for entry, row in zip(entries, rows, strict=True):
            if np.isfinite(row).all():
                entry.future.set_result(Answered(row, level, len(entries), began - entry.since, computed))
                answers += 1
            else:
                entry.future.set_exception(NetworkError("the network's answer to this input is not a number"))
        return answers

    def _probabilities(self, level: int, signals: Sequence[Signal]) -> np.ndarray[Any, Any]:
        rows = np.asarray(self._run(level, signals))
        if rows.ndim != 2 or len(rows) != len(signals):
            raise TypeError(f"expected probabilities of shape ({len(signals)}, classes), got {rows.shape}")
        return rows


def _name(error: BaseException) -> str:
    return type(error).__name__
