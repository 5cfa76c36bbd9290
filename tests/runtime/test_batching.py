"""Signals of one level run together, in bounded time, whatever others do."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, wait

import numpy as np
import pytest

from arrn.runtime.serving.batching import Answered, Batcher, NetworkError, QueueFullError, StoppedError


def signal(value: float, size: int = 4) -> np.ndarray:
    return np.full((1, size), value, np.float32)


class Recorder:
    """A network whose answer is the level and the signal's value; it takes `seconds` and fails for the value -1."""

    def __init__(self, seconds: Sequence[float] = (0.0, 0.0)) -> None:
        self.seconds = seconds
        self.batches: list[tuple[int, int]] = []
        self.go = threading.Event()
        self.go.set()
        self.started = threading.Event()

    def __call__(self, level: int, signals: Sequence[np.ndarray]) -> np.ndarray:
        self.started.set()
        assert self.go.wait(10)
        self.batches.append((level, len(signals)))
        time.sleep(self.seconds[level])
        if any(s[0, 0] == -1 for s in signals):
            raise FloatingPointError("no")
        if any(s[0, 0] == -2 for s in signals):
            raise SystemExit(1)
        return np.array([[level, s[0, 0]] for s in signals])


def rows(futures: Sequence[Future[Answered]]) -> list[list[float]]:
    return [future.result(10).probabilities.tolist() for future in futures]


def test_signals_of_one_level_run_together_and_each_gets_its_own_answer() -> None:
    run = Recorder()
    batcher = Batcher(run, delay=0.2, most=8)
    futures = [batcher.submit(n % 2, signal(n, size=4 + n)) for n in range(16)]
    assert rows(futures) == [[n % 2, n] for n in range(16)]
    assert sorted(run.batches) == [(0, 8), (1, 8)]
    assert {future.result().together for future in futures} == {8}
    batcher.close()


def test_a_lone_signal_waits_for_the_delay_and_no_longer() -> None:
    batcher = Batcher(Recorder(), delay=0.1)
    answered = batcher.submit(0, signal(1)).result(10)
    assert 0.09 < answered.queued < 2
    batcher.close()


def test_without_a_delay_a_signal_runs_at_once_and_those_that_came_meanwhile_together() -> None:
    run = Recorder()
    run.go.clear()
    batcher = Batcher(run, delay=0.0)
    first = batcher.submit(0, signal(0))
    assert run.started.wait(10)
    later = [batcher.submit(0, signal(n)) for n in range(1, 6)]
    run.go.set()
    rows([first, *later])
    assert run.batches == [(0, 1), (0, 5)]
    batcher.close()


def test_a_batch_is_bounded_by_the_weight_of_its_signals_too() -> None:
    run = Recorder()
    batcher = Batcher(run, delay=0.1, most=8, most_weight=100)
    rows([batcher.submit(0, signal(n), weight=40) for n in range(5)] + [batcher.submit(1, signal(9), weight=1000)])
    assert sorted(run.batches) == [(0, 1), (0, 2), (0, 2), (1, 1)]
    batcher.close()


def test_slow_signals_of_one_level_do_not_hold_up_another_level() -> None:
    run = Recorder(seconds=(0.1, 0.001))
    run.go.clear()
    batcher = Batcher(run, delay=0.0, most=1)
    slow = [batcher.submit(0, signal(n)) for n in range(6)]
    assert run.started.wait(10)
    fast = [batcher.submit(1, signal(n)) for n in range(12)]
    run.go.set()
    wait(slow + fast, 10)
    # As many seconds for each level: all of the fast ones run before the third of the slow ones does.
    assert [level for level, _ in run.batches].index(1) <= 2
    assert [level for level, _ in run.batches[:15]].count(1) == 12
    batcher.close()


def test_fast_signals_without_an_end_do_not_starve_a_slow_one() -> None:
    run = Recorder(seconds=(0.02, 0.005))
    batcher = Batcher(run, delay=0.0, most=1, most_held=10_000)
    fast = [batcher.submit(1, signal(n)) for n in range(200)]
    slow = batcher.submit(0, signal(7))
    assert slow.result(10).queued < 0.5 * sum(run.seconds[1] for _ in fast)
    batcher.close(patience=0.0)


def test_an_input_that_the_network_cannot_take_fails_alone() -> None:
    batcher = Batcher(Recorder(), delay=0.1, most=4)
    futures = [batcher.submit(0, signal(value)) for value in (1, -1, 2, -2)]
    assert rows([futures[0], futures[2]]) == [[0, 1], [0, 2]]
    with pytest.raises(NetworkError, match="failed on this input"):
        futures[1].result(10)
    with pytest.raises(NetworkError, match="SystemExit"):
        futures[3].result(10)
    assert batcher.healthy
    batcher.close()


def test_health_turns_red_after_three_failures_in_a_row_and_green_with_an_answer() -> None:
    batcher = Batcher(Recorder(), delay=0.0)
    for value in (-1, -1):
        assert isinstance(batcher.submit(0, signal(value)).exception(10), NetworkError)
    assert batcher.healthy
    assert isinstance(batcher.submit(0, signal(-2)).exception(10), NetworkError)
    deadline = time.monotonic() + 5
    while batcher.healthy and time.monotonic() < deadline:
        time.sleep(0.001)  # the thread counts after it has told
    assert not batcher.healthy
    batcher.submit(0, signal(1)).result(10)
    batcher.close()
    assert batcher.healthy


@pytest.mark.parametrize("answer", [np.zeros(3), np.zeros((2, 3)), [[float("nan"), 1.0]], None])
def test_answers_that_are_none_are_failures(answer: object) -> None:
    batcher = Batcher(lambda level, signals: answer, delay=0.0)  # type: ignore[arg-type, return-value]
    assert isinstance(batcher.submit(0, signal(1)).exception(10), NetworkError)
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
    assert run.started.wait(10)
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
    assert run.started.wait(10)
    assert batcher.longest_running > 0
    batcher.close(patience=0.05)
    assert isinstance(waiting.exception(10), StoppedError)
    run.go.set()
    assert rows([hanging]) == [[0, 0]]


def test_several_workers_lose_nothing() -> None:
    run = Recorder()
    batcher = Batcher(run, delay=0.001, most=4, workers=3, most_held=10_000)
    answers: dict[int, list[float]] = {}

    def send(start: int) -> None:
        futures = {n: batcher.submit(n % 2, signal(n)) for n in range(start, start + 100)}
        answers.update({n: future.result(10).probabilities.tolist() for n, future in futures.items()})

    threads = [threading.Thread(target=send, args=(100 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    batcher.close()
    assert answers == {n: [n % 2, n] for n in range(800)}
    assert sum(count for _, count in run.batches) == 800
    assert max(count for _, count in run.batches) <= 4
