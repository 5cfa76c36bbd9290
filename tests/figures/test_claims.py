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


def test_a_claim_without_its_runs_is_not_known_and_says_why() -> None:
    found = cells([result for result in invent_all() if result.name == "arrn_small"])
    assert found["Laplacian dropout up to doubles accuracy at low resolutions"] == "not known: not run without dropout"
    assert found["Laplacian dropout makes up for approximate kernels"] == "not known: no complete ablation"
    assert claims_page({}).lacking == ("results of `arrn reproduce all`",)
