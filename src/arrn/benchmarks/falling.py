"""How much faster a network gets from its largest input down, against how much less it computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arrn.benchmarks.measurement import Fact, Measurement

__all__ = ["note_falls"]


def note_falls(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Adds to each time of inference by what factor time and multiply-adds fall from the largest resolution.

    `time_falls` and `work_falls` are factors of 1 or more where things fall, `falls_kept` is the one over the
    other: 1 where all the arithmetic that is saved is saved time. What belongs to one line comes together, from the
    largest resolution down.
    """
    tops: dict[tuple[Fact, ...], Measurement] = {}
    for measured in measurements:
        line = _line(measured.facts, measured.way)
        if measured.time is not None and (line not in tops or _resolution(measured) > _resolution(tops[line])):
            tops[line] = measured
    noted = [_noted(measured, tops.get(_line(measured.facts, measured.way))) for measured in measurements]
    lines = list(dict.fromkeys(_line(measured.facts) for measured in noted))
    return sorted(noted, key=lambda measured: (lines.index(_line(measured.facts)), -_resolution(measured)))


def _line(facts: Mapping[str, Fact], way: str = "") -> tuple[Fact, ...]:
    return facts["batch"], facts["model"], facts["adapt"], way


def _resolution(measured: Measurement) -> int:
    resolution = measured.facts["resolution"]
    assert isinstance(resolution, int)
    return resolution


def _noted(measured: Measurement, top: Measurement | None) -> Measurement:
    if measured.time is None or top is None or top.time is None:
        return measured
    most, work = top.facts["multiply_adds"], measured.facts["multiply_adds"]
    assert isinstance(most, int)
    assert isinstance(work, int)
    time_falls, work_falls = top.time.median / measured.time.median, most / work
    return measured.noting(time_falls=time_falls, work_falls=work_falls, falls_kept=time_falls / work_falls)
