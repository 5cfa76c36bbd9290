"""A benchmark as a document: measured, written, read again, and compared with another."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arrn.benchmarks.deployment import benchmark_deploy
from arrn.benchmarks.depthwise import benchmark_depthwise
from arrn.benchmarks.floors import Ceilings, measure_ceilings
from arrn.benchmarks.inference import benchmark_inference
from arrn.benchmarks.measurement import Measurement
from arrn.benchmarks.resampling import benchmark_resampling
from arrn.benchmarks.serving import benchmark_serving
from arrn.benchmarks.settings import BenchmarkSettings
from arrn.benchmarks.step import benchmark_augmentation, benchmark_recipe, benchmark_step
from arrn.benchmarks.streaming import benchmark_streaming
from arrn.errors import ArrnError, unknown_name
from arrn.models import model_options
from arrn.provenance import provenance
from arrn.reading import read_document
from arrn.runs.device import tune_device
from arrn.timing import Timing
from arrn.writing import write_document, writing_to

FORMAT, FORMAT_VERSION = "arrn-benchmark", 1

SUBJECTS: dict[str, Callable[[BenchmarkSettings, Ceilings], list[Measurement]]] = {
    "step": benchmark_step,
    "inference": benchmark_inference,
    "resampling": benchmark_resampling,
    "depthwise": benchmark_depthwise,
    "augmentation": benchmark_augmentation,
    "recipe": benchmark_recipe,
    "deploy": benchmark_deploy,
}
"""What can be measured of a model, by name."""

LOAD, DATA = "load", "data"
_BY_NAME_ALONE = {LOAD: benchmark_serving, DATA: benchmark_streaming}
"""The subjects that are not of a model: a server over a saved network, and streamed data. `all` leaves them out."""


@dataclass(frozen=True)
class BenchmarkReport:
    """What was measured in one run.

    Attributes:
        measurements: the times.
        ceilings: of the device, in the same run; None in a document that does not have them.
        settings: model, device and the like, as plain data.
        provenance: hardware, versions and commit.
    """

    measurements: Sequence[Measurement]
    ceilings: Ceilings | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)


def pick_subjects(name: str) -> list[str]:
    """The subjects that a name stands for: itself, or all of a model's."""
    if name == "all":
        return list(SUBJECTS)
    if name not in (*SUBJECTS, *_BY_NAME_ALONE):
        raise unknown_name("subject", name, ("all", *SUBJECTS, *_BY_NAME_ALONE))
    return [name]


def run_benchmark(
    subjects: Sequence[str],
    settings: BenchmarkSettings,
    say: Callable[[str], None] = lambda text: None,
    show: Callable[[str, BenchmarkReport], None] = lambda subject, report: None,
) -> BenchmarkReport:
    """Measures the ceilings of the device, then each subject; those of `LOAD` and `DATA` have none.

    Args:
        subjects: names of `SUBJECTS`; or `LOAD` alone, or `DATA` alone.
        settings: of all of them.
        say: told what is measured now.
        show: given each subject when it is done, and the report so far.
    """
    if len(subjects) == 1 and subjects[0] in _BY_NAME_ALONE:
        return _run_by_name(subjects[0], settings, say, show)
    tune_device(settings.device, one_shape=True)
    # A name or an option that cannot be is said before the first minute has passed.
    for name in settings.baselines:
        model_options(name)
    settings.build()
    say("measuring the ceilings of the device")
    ceilings = measure_ceilings(settings)
    described = {
        "model": settings.model,
        "network": None if settings.network is None else str(settings.network),
        "options": dict(settings.options),
        "device": settings.device.type,
        "batches": list(settings.batches),
        "resolutions": list(settings.resolutions),
        "baselines": list(settings.baselines),
        "compiled": settings.compiled,
        "quick": settings.quick,
    }
    report = BenchmarkReport([], ceilings, described, provenance())
    for subject in subjects:
        say(f"measuring {subject}")
        measured = SUBJECTS[subject](settings, ceilings)
        report = dataclasses.replace(report, measurements=[*report.measurements, *measured])
        show(subject, report)
    return report


def _run_by_name(
    subject: str,
    settings: BenchmarkSettings,
    say: Callable[[str], None],
    show: Callable[[str, BenchmarkReport], None],
) -> BenchmarkReport:
    described: dict[str, Any] = {"device": settings.device.type, "seconds": settings.seconds}
    if subject == LOAD:
        described["network"] = str(settings.network)
    else:
        described |= {"data": str(settings.data), "gigabytes": list(settings.gigabytes), "workers": settings.workers}
    report = BenchmarkReport(_BY_NAME_ALONE[subject](settings, say), None, described, provenance())
    show(subject, report)
    return report


def write_benchmark(report: BenchmarkReport, path: Path) -> None:
    """Writes the JSON file, whole or not at all."""
    ceilings = report.ceilings
    content = {
        "settings": dict(report.settings),
        "provenance": dict(report.provenance),
        "ceilings": None if ceilings is None else {"bandwidth": ceilings.bandwidth, "rates": dict(ceilings.rates)},
        "measurements": [measurement.document() for measurement in report.measurements],
    }
    with writing_to(path):
        write_document(path, FORMAT, FORMAT_VERSION, content)


def read_benchmark(path: Path) -> BenchmarkReport:
    """Reads what `write_benchmark` wrote.

    Raises:
        ArrnError: names the file and what is wrong in it.
    """
    document = read_document(path, FORMAT, FORMAT_VERSION)
    entries = document.get("measurements")
    if not isinstance(entries, list):
        raise ArrnError(f"{path}: measurements must be a list, got {entries!r}")
    try:
        measurements = [Measurement.read(entry) for entry in entries]
        ceilings = _read_ceilings(document.get("ceilings"))
    except ArrnError as error:
        raise ArrnError(f"{path}: {error}") from None
    described = [document.get(name) for name in ("settings", "provenance")]
    settings, origin = (value if isinstance(value, dict) else {} for value in described)
    return BenchmarkReport(measurements, ceilings, settings, origin)


def _read_ceilings(value: Any) -> Ceilings | None:
    if value is None:
        return None
    if not (isinstance(value, dict) and isinstance(value.get("rates"), dict)):
        raise ArrnError(f"ceilings must be an object with bandwidth and rates, got {value!r}")
    numbers = [value.get("bandwidth"), *value["rates"].values()]
    if not all(isinstance(number, int | float) and number > 0 for number in numbers):
        raise ArrnError(f"ceilings must be numbers above 0, got {value!r}")
    return Ceilings(value["bandwidth"], value["rates"])


@dataclass(frozen=True)
class Change:
    """One measurement in two runs: the case and the way, and both times."""

    key: tuple[str, str, str]
    before: Timing
    after: Timing

    @property
    def relative(self) -> float:
        """The change of the time: -0.5 is half the time."""
        return self.after.median / self.before.median - 1

    @property
    def moved(self) -> bool:
        """Whether the times differ by more than either run's own spread."""
        spread = max(time.upper - time.lower for time in (self.before, self.after))
        return abs(self.after.median - self.before.median) > spread


@dataclass(frozen=True)
class Comparison:
    """What two benchmarks say together.

    Attributes:
        changes: what both measured, in the order of the second.
        gone: what only the first has a time for, in words.
        new: what only the second has a time for, in words.
        differences: what makes the runs less comparable, in words: hardware, versions, settings.
    """

    changes: Sequence[Change]
    gone: Sequence[str]
    new: Sequence[str]
    differences: Sequence[str]


def compare(before: BenchmarkReport, after: BenchmarkReport) -> Comparison:
    """Matches the measurements of two runs by subject, case and way; one without a time counts as missing."""
    first, second = _times(before.measurements), _times(after.measurements)
    changes = [Change(key, first[key], time) for key, time in second.items() if key in first]
    gone = describe_missing([key for key in first if key not in second], list(second))
    new = describe_missing([key for key in second if key not in first], list(first))
    return Comparison(changes, gone, new, _differences(before, after))


def describe_missing(keys: Sequence[tuple[str, str, str]], other: Sequence[tuple[str, str, str]]) -> list[str]:
    """The keys that `other` does not have, a line each; a subject that it has nothing of is one line.

    >>> describe_missing([("step", "a", "b"), ("step", "a", "c"), ("depthwise", "d", "e")], [("depthwise", "x", "y")])
    ['step: all 2 measurements', 'depthwise: d, e']
    """
    known = {subject for subject, _, _ in other}
    lines = []
    for subject in dict.fromkeys(subject for subject, _, _ in keys):
        group = [f"{subject}: {case}, {way}" for place, case, way in keys if place == subject]
        lines += group if subject in known else [f"{subject}: all {len(group)} measurements"]
    return lines


def _times(measurements: Sequence[Measurement]) -> dict[tuple[str, str, str], Timing]:
    return {measured.key: measured.time for measured in measurements if measured.time is not None}


def _differences(before: BenchmarkReport, after: BenchmarkReport) -> list[str]:
    pairs = [
        *((before.provenance, after.provenance, name) for name in ("gpu", "processor", "threads", "torch", "commit")),
        *((before.settings, after.settings, name) for name in ("device", "quick", "options", "compiled")),
    ]
    return [
        f"{name}: {first.get(name)} -> {second.get(name)}"
        for first, second, name in pairs
        if first.get(name) != second.get(name)
    ]
