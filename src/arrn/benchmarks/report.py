"""A benchmark as a document: measured, written, and read again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arrn.benchmarks.augmentation import benchmark_augmentation
from arrn.benchmarks.ceilings import Ceilings, measure_ceilings
from arrn.benchmarks.depthwise import benchmark_depthwise
from arrn.benchmarks.inference import benchmark_inference
from arrn.benchmarks.measurement import Measurement
from arrn.benchmarks.resampling import benchmark_resampling
from arrn.benchmarks.settings import BenchmarkSettings
from arrn.benchmarks.step import benchmark_step
from arrn.documents import read_document, write_document
from arrn.errors import ArrnError, unknown_name
from arrn.experiments.device import tune_device
from arrn.models import model_options
from arrn.provenance import provenance

__all__ = ["SUBJECTS", "BenchmarkReport", "pick_subjects", "read_benchmark", "run_benchmark", "write_benchmark"]

FORMAT, FORMAT_VERSION = "arrn-benchmark", 1

SUBJECTS: dict[str, Callable[[BenchmarkSettings, Ceilings], list[Measurement]]] = {
    "step": benchmark_step,
    "inference": benchmark_inference,
    "resampling": benchmark_resampling,
    "depthwise": benchmark_depthwise,
    "augmentation": benchmark_augmentation,
}
"""What can be measured, by name."""


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
    """The subjects that a name stands for: itself, or all of them."""
    if name == "all":
        return list(SUBJECTS)
    if name not in SUBJECTS:
        raise unknown_name("subject", name, ("all", *SUBJECTS))
    return [name]


def run_benchmark(
    subjects: Sequence[str],
    settings: BenchmarkSettings,
    say: Callable[[str], None] = lambda text: None,
    show: Callable[[str, BenchmarkReport], None] = lambda subject, report: None,
) -> BenchmarkReport:
    """Measures the ceilings of the device, then each subject.

    Args:
        subjects: names of `SUBJECTS`.
        settings: of all of them.
        say: told what is measured now.
        show: given each subject when it is done, and the report so far.
    """
    tune_device(settings.device, one_shape=True)
    # A name or an option that cannot be is said before the first minute has passed.
    for name in settings.baselines:
        model_options(name)
    settings.build()
    say("measuring the ceilings of the device")
    ceilings = measure_ceilings(settings)
    described = {
        "model": settings.model,
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


def write_benchmark(report: BenchmarkReport, path: Path) -> None:
    """Writes the JSON file, whole or not at all."""
    ceilings = report.ceilings
    content = {
        "settings": dict(report.settings),
        "provenance": dict(report.provenance),
        "ceilings": None if ceilings is None else {"bandwidth": ceilings.bandwidth, "rates": dict(ceilings.rates)},
        "measurements": [measurement.document() for measurement in report.measurements],
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_document(path, FORMAT, FORMAT_VERSION, content)
    except OSError as error:
        raise ArrnError(f"cannot write {path}: {error.strerror or error}") from error


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
