"""The figure of accuracy against cost: who is in it, joined by what, and what it says is lacking."""

import dataclasses

import pytest

pytest.importorskip("matplotlib")

from arrn.experiments.plan import PlannedRun, plan
from arrn.figures.frontier import frontier_figure
from arrn.figures.runs import Run, group_runs
from artists import check_legends, labels
from invented import invent_all


def in_the_ablation_alone(run: PlannedRun) -> bool:
    return run.options.get("dropout") == 0 or run.options.get("kernel", "perfect") != "perfect"


def test_every_network_is_a_point_and_ours_are_joined() -> None:
    (runs,) = group_runs(invent_all()).values()
    drawing = frontier_figure("sample", runs)
    assert drawing.figure is not None
    panels = drawing.figure.axes
    assert [axes.get_title() for axes in panels] == 2 * ["inputs of 32x32", "inputs of 16x16", "inputs of 8x8"]
    for axes in panels:
        (joined,) = [line for line in axes.lines if line.get_linestyle() == "-"]
        assert len(joined.get_xdata()) == 2  # arrn_medium and arrn_mini
    for axes in panels[:3]:  # those below show the networks that were timed
        assert len(axes.containers) == len([run for run in plan("sample") if not in_the_ablation_alone(run)])
    (legend,) = drawing.figure.legends
    assert {"ARRN medium", "ARRN mini", "ResNet18, switchable, 54 channels (frontier recipe)"} <= set(labels(legend))
    check_legends(drawing.figure)
    assert drawing.lacking == ()
    untimed = [run for run in runs if run.name != "arrn_mini"]
    untimed += [Run((dataclasses.replace(run.first, timings=[]),)) for run in runs if run.name == "arrn_mini"]
    assert frontier_figure("sample", untimed).lacking == ("times of arrn_mini, measured as arrn_medium's",)


def test_without_a_design_of_ours_there_is_nothing_to_draw() -> None:
    (runs,) = group_runs(invent_all()).values()
    rivals = [run for run in runs if run.name not in ("arrn_medium", "arrn_mini")]
    drawing = frontier_figure("sample", rivals)
    assert drawing.figure is None
    assert drawing.lacking == ("arrn_medium", "arrn_mini")
