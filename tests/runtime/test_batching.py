"""Signals of one level run together, in bounded time, whatever others do."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np
import pytest

from arrn.runtime.serving.batching import Answered, Batcher, NetworkError, QueueFullError, StoppedError


def signal(value: float, size: int = 4) -> np.ndarray:
    return np.full((1, size), value, np.float32)


PATIENCE = 60.0  # seconds after which a test gives up: none passes or fails by how fast it is


class Clock:
    """Seconds that pass only when a test, or a network in it, says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Recorder:
    """A network whose answer is the level and the signal's value; it fails for the value -1.

    Attributes:
        batches: the level and the number of signals of each run.
        go: the network waits until this is set.
        started: set by the first run.
    """

    def __init__(self, clock: Clock | None = None, seconds: Sequence[float] = (0.0, 0.0)) -> None:
        self.clock, self.seconds = clock or Clock(), seconds
        self.batches: list[tuple[int, int]] = []
        self.go = threading.Event()
        self.go.set()
        self.started = threading.Event()

    def __call__(self, level: int, signals: Sequence[np.ndarray]) -> np.ndarray:
        self.started.set()
        assert self.go.wait(PATIENCE)
        self.batches.append((level, len(signals)))
        self.clock.now += self.seconds[level]
        if any(s[0, 0] == -1 for s in signals):
            raise FloatingPointError("no")
        if any(s[0, 0] == -2 for s in signals):
            raise SystemExit(1)
        return np.array([[level, s[0, 0]] for s in signals])


def rows(futures: Sequence[Future[Answered]]) -> list[list[float]]:
    return [future.result(PATIENCE).probabilities.tolist() for future in futures]


def test_signals_of_one_level_run_together_and_each_gets_its_own_answer() -> None:
    run = Recorder()
    batcher = Batcher(run, delay=PATIENCE, most=8)
    futures = [batcher.submit(n % 2, signal(n, size=4 + n)) for n in range(16)]
    assert rows(futures) == [[n % 2, n] for n in range(16)]
    assert sorted(run.batches) == [(0, 8), (1, 8)]
    assert {future.result().together for future in futures} == {8}
    batcher.close()


def test_a_lone_signal_waits_for_the_delay_and_no_longer() -> None:
    clock, run = Clock(), Recorder()
    batcher = Batcher(run, delay=0.02, clock=clock)
    future = batcher.submit(0, signal(1))
    assert not run.started.wait(0.2)
    clock.now = 0.02
    assert future.result(PATIENCE).queued == 0.02
    batcher.close()


def test_without_a_delay_a_signal_runs_at_once_and_those_that_came_meanwhile_together() -> None:
    run = Recorder()
    run.go.clear()
    batcher = Batcher(run, delay=0.0)
    first = batcher.submit(0, signal(0))
    assert run.started.wait(PATIENCE)
    later = [batcher.submit(0, signal(n)) for n in range(1, 6)]
    run.go.set()
    rows([first, *later])
    assert run.batches == [(0, 1), (0, 5)]
    batcher.close()


def test_a_batch_is_bounded_by_the_weight_of_its_signals_too() -> None:
    run = Recorder()
    batcher = Batcher(run, delay=PATIENCE, most=8, most_weight=100)
    futures = [batcher.submit(0, signal(n), weight=40) for n in range(5)] + [batcher.submit(1, signal(9), weight=1000)]
    batcher.close()
    assert rows(futures) == [*([0, n] for n in range(5)), [1, 9]]
    assert sorted(run.batches) == [(0, 1), (0, 2), (0, 2), (1, 1)]


def test_slow_signals_of_one_level_do_not_hold_up_another_level() -> None:
    clock = Clock()
    run = Recorder(clock, seconds=(0.1, 0.001))
    run.go.clear()
    batcher = Batcher(run, delay=0.0, most=1, clock=clock)
    slow = [batcher.submit(0, signal(n)) for n in range(6)]
    assert run.started.wait(PATIENCE)
    fast = [batcher.submit(1, signal(n)) for n in range(12)]
    run.go.set()
    rows(slow + fast)
    # As many seconds for each level: all of the fast ones run before the second of the slow ones does.
    assert [level for level, _ in run.batches] == [0] + [1] * 12 + [0] * 5
    batcher.close()


def test_fast_signals_without_an_end_do_not_starve_a_slow_one() -> None:
    clock = Clock()
    run = Recorder(clock, seconds=(1 / 16, 1 / 64))
    run.go.clear()
    batcher = Batcher(run, delay=0.0, most=1, most_held=10_000, clock=clock)
    futures = [batcher.submit(1, signal(n)) for n in range(200)]
    assert run.started.wait(PATIENCE)
    futures += [batcher.submit(0, signal(n)) for n in range(3)]
    run.go.set()
    rows(futures)
    # As many seconds for each level: four fast ones for each slow one.
    assert [level for level, _ in run.batches[:15]] == [1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1]
    batcher.close()


def test_an_input_that_the_network_cannot_take_fails_alone() -> None:
    batcher = Batcher(Recorder(), delay=PATIENCE, most=4)
    futures = [batcher.submit(0, signal(value)) for value in (1, -1, 2, -2)]
    assert rows([futures[0], futures[2]]) == [[0, 1], [0, 2]]
    with pytest.raises(NetworkError, match="failed on this input"):
        futures[1].result(PATIENCE)
    with pytest.raises(NetworkError, match="SystemExit"):
        futures[3].result(PATIENCE)
    assert batcher.healthy
    batcher.close()


@pytest.mark.parametrize(
    ("values", "healthy"), [((-1, -1), True), ((-1, -1, -2), False), ((-1, -1, 1, -1), True), ((-1, -1, -1, 1), True)]
)
def test_health_turns_red_after_three_failures_in_a_row_and_green_with_an_answer(
    values: Sequence[int], healthy: bool
) -> None:
    batcher = Batcher(Recorder(), delay=0.0)
    for value in values:
        failure = batcher.submit(0, signal(value)).exception(PATIENCE)
        assert isinstance(failure, NetworkError) is (value < 0)
    batcher.close()  # the thread counts after it has told
    assert batcher.healthy is healthy


@pytest.mark.parametrize("answer", [np.zeros(3), np.zeros((2, 3)), [[float("nan"), 1.0]], None])
def test_answers_that_are_none_are_failures(answer: object) -> None:
    batcher = Batcher(lambda level, signals: answer, delay=0.0)  # type: ignore[arg-type, return-value]
    assert isinstance(batcher.submit(0, signal(1)).exception(PATIENCE), NetworkError)
    batcher.close()


def test_what_is_held_is_bounded_and_let_go() -> None:
    run = Recorder()
    run.go.clear()
    batcher = Batcher(run, delay=0.0, most_held=3, most_bytes=100)
    futures = [batcher.submit(0, signal(n)) for n in range(3)]
    with pytest.raises(QueueFullError):
        batcher.submit(1, signal(3))
    run.go.set()
    rows(futures)
    with pytest.raises(QueueFullError):
        batcher.submit(0, signal(0, size=26))
    rows([batcher.submit(0, signal(0, size=25))])
    batcher.close()
    assert batcher.held == batcher.held_bytes == 0


def test_what_is_cancelled_does_not_run() -> None:
    run = Recorder()
    run.go.clear()
    batcher = Batcher(run, delay=0.0, most=1)
    running, given_up, kept = [batcher.submit(0, signal(n)) for n in range(3)]
    assert run.started.wait(PATIENCE)
    assert given_up.cancel()
    run.go.set()
    rows([running, kept])
    batcher.close()
    assert run.batches == [(0, 1), (0, 1)]
    assert batcher.held == 0


def test_closing_answers_what_waits_and_takes_no_more() -> None:
    batcher = Batcher(Recorder(), delay=30.0)
    futures = [batcher.submit(n % 2, signal(n)) for n in range(5)]
    batcher.close()
    assert rows(futures) == [[n % 2, n] for n in range(5)]
    with pytest.raises(StoppedError):
        batcher.submit(0, signal(0))


def test_closing_gives_up_on_a_network_that_hangs() -> None:
    run = Recorder()
    run.go.clear()
    batcher = Batcher(run, delay=0.0, most=1)
    hanging, waiting = batcher.submit(0, signal(0)), batcher.submit(0, signal(1))
    assert run.started.wait(PATIENCE)
    assert batcher.longest_running > 0
    batcher.close(patience=0.05)
    assert isinstance(waiting.exception(PATIENCE), StoppedError)
    run.go.set()
    assert rows([hanging]) == [[0, 0]]


def test_several_workers_lose_nothing() -> None:
    run = Recorder()
    batcher = Batcher(run, delay=0.001, most=4, workers=3, most_held=10_000)
    answers: dict[int, list[float]] = {}

    def send(start: int) -> None:
        futures = {n: batcher.submit(n % 2, signal(n)) for n in range(start, start + 100)}
        answers.update({n: future.result(PATIENCE).probabilities.tolist() for n, future in futures.items()})

    threads = [threading.Thread(target=send, args=(100 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    batcher.close()
    assert answers == {n: [n % 2, n] for n in range(800)}
    assert sum(count for _, count in run.batches) == 800
    assert max(count for _, count in run.batches) <= 4
