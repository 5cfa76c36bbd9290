"""The paper's efficiency figure, drawn from a benchmark of inference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from arrn.benchmarks.inference import TEST_IMAGES, last_way_of_all
from arrn.benchmarks.measurement import Measurement
from arrn.benchmarks.report import BenchmarkReport
from arrn.errors import ArrnError
from arrn.figures.curves import ARCHITECTURES, Curve, Point
from arrn.figures.efficiency import Panel, Saving, draw_efficiency
from arrn.figures.style import save_figure
from arrn.provenance import machine_of


def efficiency_panels(measurements: Sequence[Measurement]) -> dict[str, Panel]:
    """A panel for each batch size, in the fastest kind of way that every network there was measured in."""
    timed = [m for m in measurements if m.subject == "inference" and m.time is not None]
    panels = {}
    for batch in dict.fromkeys(m.facts["batch"] for m in timed):
        alike = last_way_of_all([m for m in timed if m.facts["batch"] == batch])
        if alike:
            measure = f"seconds for {TEST_IMAGES:,} images, batches of {batch}, {alike[0].way}"
            panels[measure] = _panel(alike)
    return panels


def plot_efficiency(report: BenchmarkReport, path: Path) -> Path:
    """Draws the inference of a benchmark.

    Raises:
        ArrnError: where there is none, or the file cannot be written.
    """
    panels = efficiency_panels(report.measurements)
    if not panels:
        raise ArrnError("these numbers hold no times of inference to plot: run arrn benchmark inference")
    title = f"Inference on {machine_of(report.provenance)}"
    try:
        return save_figure(draw_efficiency(panels, title), path)
    except OSError as error:
        raise ArrnError(f"cannot write {path}: {error.strerror or error}") from error


def _panel(group: Sequence[Measurement]) -> Panel:
    found: dict[tuple[str, bool | None], list[Point]] = {}
    for measured in group:
        resolution, adapt, batch = (measured.facts[name] for name in ("resolution", "adapt", "batch"))
        assert isinstance(resolution, int)
        assert isinstance(batch, int)
        assert measured.time is not None
        network = (str(measured.facts["model"]), adapt if isinstance(adapt, bool) else None)
        time, share = measured.time, TEST_IMAGES / batch
        point = Point(resolution, time.median * share, time.lower * share, time.upper * share)
        found.setdefault(network, []).append(point)
    curves = {
        (model, adapt): _curve(model, adapt, sorted(points, key=lambda point: point.resolution))
        for (model, adapt), points in found.items()
    }
    ours = next((model for model, adapt in curves if adapt), None)
    saving = None
    if ours is not None and (ours, False) in curves:
        saving = Saving(curves.pop((ours, True)), curves.pop((ours, False)))
    return saving, list(curves.values())


def _curve(model: str, adapt: bool | None, points: Sequence[Point]) -> Curve:
    if adapt is not None:
        return Curve(f"{model}, {'adapted' if adapt else 'all levels'}", "arrn", tuple(points))
    title, family, member = ARCHITECTURES.get(model, (model, "other", 0))
    return Curve(title, family, tuple(points), member)
