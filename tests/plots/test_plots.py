"""Pictures: that they are drawn, and that what they are drawn from is sorted rightly."""

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("matplotlib")

from arrn.plots import (
    EfficiencyLine,
    accuracy_lines,
    plot_accuracy,
    plot_efficiency,
    plot_kernel_quality,
    plot_pyramid,
)
from arrn.signal import LaplacianPyramid

PNG = b"\x89PNG"


def result(resolution: int | None, adapt: bool | None, policy: str | None, accuracy: float) -> dict[str, Any]:
    interval = [accuracy - 0.1, accuracy + 0.1]
    return {"resolution": resolution, "adapt": adapt, "policy": policy, "accuracy": accuracy, "interval": interval}


def test_a_pyramid_is_drawn(tmp_path: Path) -> None:
    drawn = plot_pyramid(tmp_path / "new folder" / "pyramid.png", torch.rand(1, 3, 24, 20), LaplacianPyramid((24, 12)))
    assert drawn.read_bytes().startswith(PNG)


def test_kernels_are_drawn(tmp_path: Path) -> None:
    assert plot_kernel_quality(tmp_path / "kernels.png").read_bytes().startswith(PNG)


def test_lines_are_by_policy_and_running_every_level_is_one() -> None:
    ways = [(True, "exact"), (True, "cheap"), (False, "exact"), (False, "cheap")]
    results = [result(r, adapt, policy, 0.5) for r in (16, None, 32) for adapt, policy in ways]
    lines = accuracy_lines("net", results)
    assert list(lines) == ["net, adapted (exact)", "net, adapted (cheap)", "net, all levels"]
    assert all([point["resolution"] for point in points] == [16, 32] for points in lines.values())
    assert list(accuracy_lines("fixed", [result(8, None, None, 0.3)])) == ["fixed"]


def test_accuracies_are_drawn_with_their_names(tmp_path: Path) -> None:
    lines = {"first & second": [result(8, True, "exact", 0.4), result(32, True, "exact", 0.7)]}
    text = plot_accuracy(tmp_path / "accuracy.svg", lines, "a title").read_text()
    assert "<svg" in text
    assert plot_accuracy(tmp_path / "accuracy.png", lines).read_bytes().startswith(PNG)


@pytest.mark.parametrize("slowest", [2.0, 200.0])  # on a linear axis, on a logarithmic one
def test_efficiency_is_drawn_with_what_adaptation_saves(tmp_path: Path, slowest: float) -> None:
    lines = [
        EfficiencyLine("ours", adapt, [(8, least, least, least), (32, 2.0, 1.9, 2.1)])
        for adapt, least in ((True, 1.0), (False, 2.0))
    ]
    lines.append(EfficiencyLine("theirs", None, [(8, slowest, slowest, slowest), (32, slowest, 1.0, 300.0)]))
    text = plot_efficiency(tmp_path / "e.svg", {"batch 1": lines, "batch 1000": lines}, "a title").read_text()
    assert "<svg" in text
    panel = {"batch 1": lines[2:]}  # nothing to save
    assert plot_efficiency(tmp_path / "new folder" / "e.png", panel).read_bytes().startswith(PNG)
