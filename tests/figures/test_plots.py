"""Pictures: that they are drawn, and that what they are drawn from is sorted rightly."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from arrn.figures.accuracy import accuracy_lines, plot_accuracy
from arrn.figures.kernels import plot_kernel_quality
from arrn.figures.pareto import ParetoPoint, plot_pareto

PNG = b"\x89PNG"


def result(resolution: int | None, adapt: bool | None, policy: str | None, accuracy: float) -> dict[str, Any]:
    interval = [accuracy - 0.1, accuracy + 0.1]
    return {"resolution": resolution, "adapt": adapt, "policy": policy, "accuracy": accuracy, "interval": interval}


def test_kernels_are_drawn(tmp_path: Path) -> None:
    assert plot_kernel_quality(tmp_path / "new folder" / "kernels.png").read_bytes().startswith(PNG)


def test_a_link_in_the_place_of_a_picture_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("the user's own")
    picture = tmp_path / "evaluation.png"
    picture.symlink_to(precious)
    lines = {"first": [result(8, True, "exact", 0.4)]}
    assert plot_accuracy(picture, lines).read_bytes().startswith(PNG)
    assert precious.read_text() == "the user's own"
    assert not picture.is_symlink()


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


@pytest.mark.parametrize("costs", [(1e6, 5e8, 2e7), (1.1e7, 1.2e7, 1.3e7), (1e6, 1e6, 1e6), (2e3, 3e3, 3e3)])
def test_designs_are_drawn_with_their_labels_whatever_they_cost(tmp_path: Path, costs: tuple[float, ...]) -> None:
    points = [ParetoPoint(f"design {n}", cost, {"mean": 0.5 + n / 10}, n == 2) for n, cost in enumerate(costs)]
    text = plot_pareto(tmp_path / "pareto.svg", points, "a title").read_text()
    assert text.count("<!-- design ") == 3
