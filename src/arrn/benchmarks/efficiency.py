"""The paper's efficiency figure from measurements: which lines, in which way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from arrn.benchmarks.inference import TEST_IMAGES, last_way_of_all
from arrn.benchmarks.measurement import Measurement
from arrn.benchmarks.report import BenchmarkReport
from arrn.errors import ArrnError
from arrn.plots.efficiency import EfficiencyLine, plot_efficiency

__all__ = ["draw_efficiency", "efficiency_panels"]


def efficiency_panels(measurements: Sequence[Measurement]) -> dict[str, list[EfficiencyLine]]:
    """A panel for each batch size, in the fastest kind of way that every network there was measured in."""
    timed = [m for m in measurements if m.subject == "inference" and m.time is not None]
    panels = {}
    for batch in dict.fromkeys(m.facts["batch"] for m in timed):
        alike = last_way_of_all([m for m in timed if m.facts["batch"] == batch])
        if alike:
            panels[f"batch {batch}, {alike[0].way}"] = _lines(alike)
    return panels


def draw_efficiency(report: BenchmarkReport, path: Path) -> Path:
    """Draws the inference of a benchmark.

    Raises:
        ArrnError: where there is none, or the file cannot be written.
    """
    panels = efficiency_panels(report.measurements)
    if not panels:
        raise ArrnError("there is no inference to plot: benchmark inference, or all")
    origin = report.provenance
    title = f"Inference on {origin.get('gpu') or origin.get('processor')}, torch {origin.get('torch')}"
    try:
        return plot_efficiency(path, panels, title, TEST_IMAGES)
    except OSError as error:
        raise ArrnError(f"cannot write {path}: {error.strerror or error}") from error


def _lines(group: Sequence[Measurement]) -> list[EfficiencyLine]:
    found: dict[tuple[str, bool | None], list[tuple[int, float, float, float]]] = {}
    for measured in group:
        resolution, adapt, batch = (measured.facts[name] for name in ("resolution", "adapt", "batch"))
        assert isinstance(resolution, int)
        assert isinstance(batch, int)
        assert measured.time is not None
        line = (str(measured.facts["model"]), adapt if isinstance(adapt, bool) else None)
        share = TEST_IMAGES / batch
        time = measured.time
        found.setdefault(line, []).append((resolution, time.median * share, time.lower * share, time.upper * share))
    return [EfficiencyLine(model, adapt, sorted(points)) for (model, adapt), points in found.items()]
