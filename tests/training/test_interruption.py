"""SIGINT and SIGTERM: the first is noted, a second acts as always, and afterwards all is as before."""

import signal
import threading

import pytest

from arrn.training import stop_on_signals

BOTH = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("number", BOTH)
def test_the_first_signal_is_noted_by_name(number: signal.Signals) -> None:
    with stop_on_signals() as stop:
        assert stop.signal is None
        signal.raise_signal(number)
        assert stop.signal == number.name


def test_a_second_one_acts_as_it_did_before() -> None:
    with stop_on_signals() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.signal == "SIGINT"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in BOTH]
    with stop_on_signals():
        assert [signal.getsignal(number) for number in BOTH] != before
    assert [signal.getsignal(number) for number in BOTH] == before


def test_another_thread_trains_without_handlers() -> None:
    before = signal.getsignal(signal.SIGINT)
    found: list[object] = []

    def use() -> None:
        with stop_on_signals() as stop:
            found.append((stop.signal, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert found == [(None, before)]
