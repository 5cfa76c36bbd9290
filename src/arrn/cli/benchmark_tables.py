"""The tables of `arrn benchmark`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from arrn.cli.console import shown

if TYPE_CHECKING:  # help and completion do not wait for torch
    from arrn.benchmarks.floors import Ceilings
    from arrn.benchmarks.measurement import Fact, Measurement
    from arrn.benchmarks.report import Comparison

_WORDS = {
    "step": "A training step",
    "inference": "Inference",
    "resampling": "Resampling",
    "depthwise": "Depthwise 3x3, replicate padding",
    "augmentation": "A training step without and with TrivialAugmentWide",
    "recipe": "A training step by the recipe frontier: the baselines, then the model",
    "deploy": "Answers: PyTorch, exported files, and these in 8 bits",
}


def format_seconds(seconds: float | None) -> str:
    """Three digits and the unit that suits them.

    >>> format_seconds(0.0000312), format_seconds(0.0215), format_seconds(3.0)
    ('31.2 us', '21.5 ms', '3 s')
    """
    if seconds is None:
        return ""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def ceilings_line(ceilings: Ceilings) -> str:
    """What the device did at its best."""
    rates = ", ".join(f"{rate / 1e12:.3g} TFLOP/s in {dtype}" for dtype, rate in ceilings.rates.items())
    return f"measured ceilings: copy {ceilings.bandwidth / 1e9:.4g} GB/s; matrix product {rates}"


def times_table(subject: str, measurements: Sequence[Measurement]) -> Table:
    """Times with their spread, ratio to the reference, floors, and on a GPU memory."""
    memory = any("peak_allocated" in m.facts for m in measurements)
    floored = any(m.floors is not None for m in measurements)
    floor_words = "; floors: least time for bytes and for arithmetic, at the measured ceilings"
    table = _table(
        _WORDS.get(subject, subject),
        "faster: the first way's time over this one"
        + floor_words * floored
        + "; memory: peak, and as a part of the first way's" * memory,
        ["case", "way"],
        ["time", "spread", "faster"]
        + ["traffic", "arithmetic", "time/floor"] * floored
        + ["allocated", "held"] * memory,
    )
    for group in _by_case(measurements):
        for n, measured in enumerate(group):
            cells = [measured.case if n == 0 else "", measured.way]
            if measured.time is None:
                table.add_row(*map(shown, [*cells, "failed"]), end_section=n == len(group) - 1)
                continue
            cells += [format_seconds(measured.time.median), f"{measured.time.spread:.0%}"]
            cells.append("" if measured.faster is None else f"{measured.faster:.2f}x")
            if floored:
                cells += _floor_cells(measured)
            if memory:
                cells += [_memory(measured.facts, group[0].facts, name) for name in ("peak_allocated", "peak_held")]
            table.add_row(*map(shown, cells), end_section=n == len(group) - 1)
    return table


def inference_table(measurements: Sequence[Measurement]) -> Table:
    """Of one batch size: a row for each case, a column for each way: time, and how much faster than the first."""
    ways = list(dict.fromkeys(measured.way for measured in measurements))
    table = _table(
        f"Inference, batch {measurements[0].facts['batch']}",
        "x: times faster than the first way; floors: least time for bytes and for arithmetic, at the measured "
        "ceilings; time/floor: of the last way; spread: the row's largest",
        ["case"],
        [*ways, "spread", "traffic", "arithmetic", "time/floor"],
    )
    previous = ""
    for group in _by_case(measurements):
        line = _name(group[0].facts)
        if previous not in ("", line):
            table.add_section()
        previous = line
        found = {measured.way: measured for measured in group}
        cells = [_time_and_ratio(found.get(way), way == ways[0]) for way in ways]
        cells.append(f"{max((m.time.spread for m in group if m.time is not None), default=0):.0%}")
        cells = [f"{line} at {group[0].facts['resolution']}", *cells, *_floor_cells(group[-1])]
        table.add_row(*map(shown, cells))
    return table


def falls_table(measurements: Sequence[Measurement]) -> Table:
    """Measurements in one way: time for each multiply-add, and how time falls with them from the top resolution."""
    first = measurements[0]
    table = _table(
        f"Inference, {first.way}, batch {first.facts['batch']}: does time fall with arithmetic?",
        "falls: from the largest resolution of the same line, as factors; kept: the one over the other",
        ["network"],
        ["size", "M mult-adds", "an image", "10,000", "ps/mult-add", "time falls", "work falls", "kept"],
    )
    for measured in measurements:
        facts = measured.facts
        table.add_row(
            shown(_name(facts)),
            shown(facts["resolution"]),
            f"{_number(facts, 'multiply_adds') / 1e6:.4g}",
            format_seconds(_number(facts, "seconds_per_image")),
            format_seconds(_number(facts, "test_set_seconds")),
            f"{_number(facts, 'seconds_per_multiply_add') / 1e-12:.3g}",
            *(f"{_number(facts, name):.2f}" for name in ("time_falls", "work_falls", "falls_kept")),
        )
    return table


def load_table(measurements: Sequence[Measurement]) -> Table:
    """What a server answered under load, and how many times as fast in each way."""
    table = _table(
        "A server under load",
        "answers: right ones; together: inputs that ran together, on average; x: times the rate of the first way",
        ["images", "way"],
        ["requests", "answers", "wrong", "lost", "a second", "spread", "x", "together", "half in", "99% in", "memory"],
    )
    for group in _by_case(measurements):
        for n, measured in enumerate(group):
            facts = measured.facts
            settled, after = (_number(facts, name) / 1e6 for name in ("memory_settled", "memory_after"))
            table.add_row(
                *map(shown, [measured.case if n == 0 else "", measured.way]),
                *(f"{_number(facts, name):,.0f}" for name in ("requests", "answers", "wrong", "lost")),
                f"{_number(facts, 'answers_a_second'):,.0f}",
                "" if measured.time is None or len(group) == 1 else f"{measured.time.spread:.0%}",
                "" if measured.faster is None else f"{measured.faster:.2f}",
                f"{_number(facts, 'together'):.1f}",
                *(format_seconds(_number(facts, name)) for name in ("half_within", "most_within")),
                f"{settled:.0f} to {after:.0f} MB" if "memory_settled" in facts else "",
                end_section=n == len(group) - 1,
            )
    return table


def data_table(measurements: Sequence[Measurement]) -> Table:
    """Samples a second of each way of getting at them, as a part of decoding alone, and the memory of streaming."""
    table = _table(
        "Streamed data",
        "of decoding: the rate as a part of what the same number of processes decode that do nothing else; main: the "
        "most that was resident in the process that reads; worker: the largest that decodes; all: these together, "
        "shared pages once",
        ["set", "way"],
        ["samples a second", "spread", "of decoding", "opening", "main", "worker", "all"],
    )
    for group in _by_case(measurements):
        for n, measured in enumerate(group):
            facts, time = measured.facts, measured.time
            opening = _number(facts, "opening") + _number(facts, "looking")
            table.add_row(
                *map(shown, [measured.case if n == 0 else "", measured.way]),
                f"{_number(facts, 'samples_a_second'):,.0f}",
                "" if time is None else f"{time.spread:.0%}",
                "" if measured.faster is None else f"{measured.faster:.2f}",
                format_seconds(opening) if "opening" in facts else "",
                *(
                    f"{_number(facts, name) / 1e6:,.0f} MB" if name in facts else ""
                    for name in ("main_memory_peak", "worker_memory", "all_memory")
                ),
                end_section=n == len(group) - 1,
            )
    return table


def comparison_table(comparison: Comparison, before: str, after: str) -> Table:
    """What both runs measured, with the change of the time; what moved beyond both spreads is marked."""
    table = _table(
        "What moved",
        "change of the time; * beyond the spread of either run",
        ["case", "way"],
        [before, after, "spreads", "change", ""],
    )
    for change in comparison.changes:
        subject, case, way = change.key
        table.add_row(
            shown(f"{subject}: {case}"),
            shown(way),
            format_seconds(change.before.median),
            format_seconds(change.after.median),
            f"{change.before.spread:.0%}, {change.after.spread:.0%}",
            f"{change.relative:+.1%}",
            "*" if change.moved else "",
        )
    return table


def _table(title: str, caption: str, texts: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(title=shown(title, "table.title"), caption=caption)
    for column in texts:
        table.add_column(shown(column))
    for column in numbers:
        table.add_column(shown(column), justify="right")
    return table


def _floor_cells(measured: Measurement) -> list[str]:
    """Both floors, and the time over the larger of them."""
    floors, over = measured.floors, measured.over_floor
    times = ["", ""] if floors is None else [format_seconds(floors.traffic), format_seconds(floors.arithmetic)]
    return [*times, "" if over is None else f"{over:.3g}"]


def _time_and_ratio(measured: Measurement | None, first: bool) -> str:
    if measured is None:
        return ""
    if measured.time is None:
        return "failed"
    ratio = "" if first or measured.faster is None else f" {measured.faster:.2f}x"
    return format_seconds(measured.time.median) + ratio


def _name(facts: Mapping[str, Fact]) -> str:
    """A network, and whether it adapts."""
    how = {"True": ", adapted", "False": ", all levels"}.get(str(facts["adapt"]), "")
    return f"{facts['model']}{how}"


def _by_case(measurements: Sequence[Measurement]) -> Iterator[list[Measurement]]:
    for case in dict.fromkeys(measured.case for measured in measurements):
        yield [measured for measured in measurements if measured.case == case]


def _number(facts: Mapping[str, Fact], name: str) -> float:
    value = facts.get(name)
    return float(value) if isinstance(value, int | float) else float("nan")


def _memory(facts: Mapping[str, Fact], reference: Mapping[str, Fact], name: str) -> str:
    used, first = _number(facts, name), _number(reference, name)
    part = f" ({used / first:.2f})" if first > 0 else ""
    return f"{used / 2**20:.0f} MiB{part}"
