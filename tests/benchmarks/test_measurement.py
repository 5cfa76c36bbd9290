"""One case in several ways: ratios, floors, and ways that fail."""

from collections.abc import Callable

import pytest
import torch

from arrn.benchmarks import BenchmarkSettings, Measurement
from arrn.benchmarks.floors import Ceilings, Floors, Work, measure_ceilings
from arrn.benchmarks.measurement import Attempt, measure
from arrn.errors import ArrnError
from arrn.gpu import is_fast
from arrn.timing import Timing

QUICK = BenchmarkSettings(quick=True)
CEILINGS = Ceilings(1e9, {"float32": 1e12})


def nothing() -> None:
    return None


def broken() -> Callable[[], object]:
    raise RuntimeError("no\nsuch  compiler")


def test_the_first_way_is_what_the_others_are_compared_with(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([Timing(4.0, 3.0, 5.0), Timing(6.0, 6.0, 6.0)])
    monkeypatch.setattr(BenchmarkSettings, "time", lambda self, call, warmup: next(times))
    attempts = [Attempt("slow", lambda: nothing, Work(10**9, 10**9)), Attempt("fast", lambda: nothing, parts=3)]
    slow, fast = measure("step", "case", attempts, QUICK, CEILINGS, {"batch": 2})
    assert (slow.faster, fast.faster) == (1.0, 2.0)
    assert fast.time == Timing(2.0, 2.0, 2.0)
    assert slow.floors == Floors(1.0, 2e-3)
    assert slow.over_floor == 4.0
    assert fast.over_floor is None
    assert fast.facts == {"batch": 2}


def test_a_way_that_fails_says_why_and_the_others_go_on() -> None:
    attempts = [Attempt("broken", broken, Work(1, 1)), Attempt("whole", lambda: nothing)]
    failed, whole = measure("step", "case", attempts, QUICK, CEILINGS, {})
    assert failed.time is None
    assert failed.failure == "RuntimeError: no such compiler"
    assert whole.time is not None
    assert whole.faster is None  # there is nothing to compare it with


def test_fast_kernels_are_off_where_they_should_be() -> None:
    seen: dict[str, set[bool]] = {"off": set(), "on": set()}
    attempts = [
        Attempt("off", lambda: lambda: seen["off"].add(is_fast()), kernels=False),
        Attempt("on", lambda: lambda: seen["on"].add(is_fast())),
    ]
    measure("step", "case", attempts, QUICK, CEILINGS, {})
    assert seen == {"off": {False}, "on": {True}}


def test_ceilings_are_positive(device: torch.device) -> None:
    ceilings = measure_ceilings(BenchmarkSettings(device=device, quick=True))
    assert ceilings.bandwidth > 0
    assert ceilings.rates["float32"] > 0


def test_inputs_that_one_turn_of_the_cache_does_not_hold() -> None:
    settings = BenchmarkSettings()
    assert settings.inputs_beyond_the_cache(2**30) == 2
    assert settings.inputs_beyond_the_cache(2**25) == 4
    assert settings.inputs_beyond_the_cache(1) == 8


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ArrnError, match=r"batches must be whole numbers of at least 1, got \[0\]"):
        BenchmarkSettings(batches=[0])


def test_a_measurement_survives_json() -> None:
    measured = Measurement("step", "c", "w", Timing(2.0, 1.0, 3.0), Floors(0.5, 1.0), 3.0, None, {"batch": 8})
    assert Measurement.read(measured.document()) == measured
    assert measured.document()["over_floor"] == 2.0
    failed = Measurement("step", "c", "w", failure="why")
    assert Measurement.read(failed.document()) == failed


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ([], "must be an object"),
        ({"subject": "step", "case": 3, "way": "w"}, "must be texts, got 'step', 3, 'w'"),
        ({"subject": "s", "case": "c", "way": "w", "seconds": 1.0}, "seconds, lower, upper must be numbers above 0"),
        ({"subject": "s", "case": "c", "way": "w", "traffic_floor": "no"}, "traffic_floor, arithmetic_floor must be"),
        ({"subject": "s", "case": "c", "way": "w", "facts": [1]}, "facts of a measurement must be an object"),
    ],
)
def test_entries_that_are_none(entry: object, message: str) -> None:
    with pytest.raises(ArrnError, match=message):
        Measurement.read(entry)
