"""Timing: how often what is called, and what the numbers are made of. Never how long something takes."""

import pytest
import torch

import arrn.timing
from arrn.timing import Timing, rotating, time_call


def test_the_spread_is_relative_and_parts_share_the_time() -> None:
    time = Timing(2.0, 1.5, 2.5)
    assert time.spread == 0.5
    assert time.shared_by(4) == Timing(0.5, 0.375, 0.625)
    assert str(Timing(0.0021, 0.0, 0.0)) == "2.1 ms"


def test_calls_are_warmed_up_and_repeated(device: torch.device) -> None:
    calls = []
    time = time_call(lambda: calls.append(torch.ones(4, device=device).sum()), repeats=3, warmup=2, device=device)
    assert len(calls) == 5
    assert 0 < time.lower <= time.median <= time.upper
    one = time_call(lambda: None, repeats=1, warmup=0)
    assert one.lower == one.median == one.upper


def test_short_calls_are_made_often_between_two_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    readings: list[int] = []

    def seconds(call: object, calls: int, device: torch.device) -> float:
        readings.append(calls)
        return 0.001 * calls

    monkeypatch.setattr(arrn.timing, "_seconds", seconds)
    time = time_call(lambda: None, repeats=2, warmup=0, at_least=0.0045)
    assert readings == [1, 5, 5]
    assert time.median == pytest.approx(0.001)


def test_inputs_are_taken_in_turn() -> None:
    seen: list[int] = []
    call = rotating(seen.append, [1, 2, 3])
    for _ in range(5):
        call()
    assert seen == [1, 2, 3, 1, 2]
