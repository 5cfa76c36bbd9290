"""Results grouped into runs, and what runs are called."""

import dataclasses

import pytest

pytest.importorskip("matplotlib")

from arrn.errors import ArrnError
from arrn.experiments.plan import PlannedRun, plan
from arrn.figures.runs import describe, group_runs, missing_runs, name_curves
from invented import invent, invent_all

FIXED = PlannedRun("resnet18", ("robustness",), "resnet18")


def test_an_interval_holds_those_of_all_seeds() -> None:
    one, three = (group_runs(invent(FIXED, seed) for seed in range(count))["sample"][0] for count in (1, 3))
    alone, together = one.points()[-1], three.points()[-1]
    assert alone.resolution == together.resolution == 32
    assert alone.low < alone.value < alone.high
    assert alone.high - alone.low > 0.04
    assert together.value == pytest.approx(alone.value + 0.001)
    assert together.low == alone.low
    assert together.high == three.results[-1].points()[-1]["interval"][1] > alone.high
    assert "one seed each (bands: 95% intervals)" in describe([one])
    assert "trained for 3 epochs, 1 to 3 seeds each (bands: 95% intervals)" in describe([one, three])


def test_a_mean_over_seeds_that_were_trained_differently_is_refused() -> None:
    other = dataclasses.replace(invent(FIXED, 1), recipe={"epochs": 9, "policy": "exact", "resolutions": []})
    with pytest.raises(ArrnError, match=r"resnet18 on sample: seeds 0 and 1 differ .*\(3 and 9 epochs\)"):
        group_runs([invent(FIXED), other])


def test_every_planned_run_has_a_name_and_a_look_of_its_own() -> None:
    (runs,) = group_runs(invent_all()).values()
    assert len(runs) == len(plan("sample"))
    curves = name_curves([(run, run.points()) for run in runs])
    assert len({curve.label for curve in curves}) == len(curves)
    assert len({(curve.family, curve.member) for curve in curves}) == len(curves)
    labels = {run.name: curve.label for run, curve in zip(runs, curves, strict=True)}
    assert labels["arrn_small"] == "ARRN with Laplacian dropout"
    assert labels["arrn_small-poor-no-dropout"] == "ARRN, poor kernel, without dropout"
    assert labels["arrn_resnet50"] == "ResNet50 as ARRN with Laplacian dropout"
    assert labels["resnet18_small_stem-random-resolution"] == "small stem, random resolutions"
    assert labels["resnet18_switchable"] == "ResNet18, switchable"
    assert labels["specialist-8"] == "small stem, only at 8"
    assert "other" not in {curve.family for curve in curves}


def test_a_variant_that_nothing_else_tells_apart_is_named_by_its_run() -> None:
    (runs,) = group_runs([invent(FIXED), invent(dataclasses.replace(FIXED, name="again"))]).values()
    curves = name_curves([(run, run.points()) for run in runs])
    assert [(curve.label, curve.member) for curve in curves] == [("ResNet18 (again)", 0), ("ResNet18 (resnet18)", 1)]


def test_what_is_missing_is_what_the_plan_has_and_the_results_have_not() -> None:
    (runs,) = group_runs(invent_all()).values()
    assert missing_runs("sample", runs, "robustness", "rivals", "ablation") == ()
    fewer = [run for run in runs if run.name not in ("resnet50", "arrn_small-poor")]
    assert missing_runs("sample", fewer, "ablation") == ("arrn_small-poor",)
    assert missing_runs("sample", fewer, "robustness") == ("resnet50",)
    assert missing_runs("a set without a plan", [], "robustness") == ()
