"""The table of the paper's claims: what invented results make of each, and what is missing."""

import dataclasses

import pytest

pytest.importorskip("matplotlib")

from arrn.experiments import Result
from arrn.experiments.plan import PlannedRun, plan
from arrn.figures.claims import claims_page
from arrn.figures.runs import group_runs
from invented import correct_answers, invent, invent_all


def cells(results: list[Result]) -> dict[str, str]:
    text = claims_page(group_runs(results)).text
    assert text is not None
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {row[0]: row[1] for row in rows[1:]}


def best_of_all(run: PlannedRun, resolution: int, adapt: bool | None) -> int:
    """As theory wants, and with dropout costing nothing at the top."""
    raised = 60 if run.name == "arrn_small" else 0
    return correct_answers(run, resolution, adapt) + raised


def test_every_claim_has_a_verdict_when_everything_was_run() -> None:
    found = cells([invent(run, correct=best_of_all) for run in plan("sample")])
    assert len(found) == 8
    assert found["With Laplacian dropout, above every baseline at every resolution"].startswith("**yes**: least margin")
    assert "10 of 10 baselines run" in found["With Laplacian dropout, above every baseline at every resolution"]
    assert found["Laplacian dropout does not cost accuracy at the highest resolution"].startswith("**yes**")
    assert found["Adaptation saves computation"] == "**yes**: 4 times fewer multiply-adds at 4, 4.0 times less time"
    assert "7 of 7 pairs" in found["Transplanted layers are more robust than their originals"]
    assert found["Adaptation helps after dropout and costs accuracy without it"].startswith("**yes**")


def test_what_contradicts_the_paper_is_said_plainly() -> None:
    results = {run.name: invent(run) for run in plan("sample")}
    better = [{**point, "accuracy": 0.99, "interval": [0.98, 0.995]} for point in results["resnet18"].report.results]
    rival = dataclasses.replace(results["resnet18"].report, results=better)
    found = [dataclasses.replace(results["resnet18"], report=rival), results["arrn_small"]]
    verdict = cells(found)["With Laplacian dropout, above every baseline at every resolution"]
    assert verdict.startswith("**no**: least margin -")
    text = claims_page(group_runs(found)).text
    assert text is not None
    assert "- sample, `resnet18`: by " in text


def test_a_transplant_below_its_original_is_listed_with_the_resolutions() -> None:
    results = {run.name: invent(run) for run in plan("sample")}
    worse = [{**point, "accuracy": point["accuracy"] - 0.3} for point in results["arrn_resnet18"].report.results]
    report = dataclasses.replace(results["arrn_resnet18"].report, results=worse)
    found = [results["resnet18"], dataclasses.replace(results["arrn_resnet18"], report=report)]
    text = claims_page(group_runs(found)).text
    assert text is not None
    title = "Transplants below their originals, in points of accuracy at each resolution"
    assert f"{title}:\n\n- sample, `arrn_resnet18`: by 31.0 at 32, " in text


def test_the_ablations_of_several_data_sets_are_judged_together_too() -> None:
    results = [result for name in ("sample", "cifar10") for result in invent_all(dataset=name)]
    text = claims_page(group_runs(results)).text
    assert text is not None
    assert "Averaged over cifar10, sample, as in the paper:" in text
    (line,) = [line for line in text.splitlines() if line.startswith("- Adaptation helps after dropout")]
    assert line.endswith("**yes**: 8 of the 8 factors that differ from 1.000, of 12")
    assert "Averaged over" not in (claims_page(group_runs(invent_all())).text or "")


def test_a_claim_without_its_runs_is_not_known_and_says_why() -> None:
    found = cells([result for result in invent_all() if result.name == "arrn_small"])
    assert found["Laplacian dropout up to doubles accuracy at low resolutions"] == "not known: not run without dropout"
    assert found["Laplacian dropout makes up for approximate kernels"] == "not known: no complete ablation"
    assert claims_page({}).lacking == ("results of `arrn reproduce all`",)


def test_rivals_are_compared_with_the_design_that_was_trained_by_their_recipe() -> None:
    results = {run.name: invent(run) for run in plan("sample")}
    names = ("arrn_small", "arrn_medium", "arrn_mini", "resnet18_switchable", "resnet18_switchable-frontier")
    for name in names[3:]:
        better = [{**point, "accuracy": 0.99} for point in results[name].report.results]
        report = dataclasses.replace(results[name].report, results=better)
        results[name] = dataclasses.replace(results[name], report=report)
    text = claims_page(group_runs([results[name] for name in names])).text
    assert text is not None
    paper, beyond = text.split("Networks above ARRN medium, trained by the same recipe")
    assert "- sample, `resnet18_switchable`: by " in paper
    assert "-frontier" not in paper
    assert beyond.count("- sample, ") == beyond.count("- sample, `resnet18_switchable-frontier`: by ") == 1
