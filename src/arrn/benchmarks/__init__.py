"""Benchmarks: training, inference, resampling, depthwise kernels, augmentation; each against a reference in one run."""

from arrn.benchmarks.measurement import Measurement
from arrn.benchmarks.report import (
    SUBJECTS,
    BenchmarkReport,
    Change,
    Comparison,
    compare,
    pick_subjects,
    read_benchmark,
    run_benchmark,
    write_benchmark,
)
from arrn.benchmarks.settings import BASELINES, BenchmarkSettings

__all__ = [
    "BASELINES",
    "SUBJECTS",
    "BenchmarkReport",
    "BenchmarkSettings",
    "Change",
    "Comparison",
    "Measurement",
    "compare",
    "pick_subjects",
    "read_benchmark",
    "run_benchmark",
    "write_benchmark",
]
