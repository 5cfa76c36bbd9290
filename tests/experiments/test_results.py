"""Results: written, read back, checked; those kept with the project too."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from arrn.errors import ArrnError
from arrn.evaluation import Report
from arrn.experiments import Result, read_results, write_result
from arrn.experiments.results import RESULT_SHAPE, check_shape

KEPT = Path(__file__).parents[2] / "results"


def answer(resolution: int, adapt: bool | None, policy: str | None, correct: int) -> dict[str, Any]:
    return {
        "resolution": resolution,
        "adapt": adapt,
        "policy": policy,
        "accuracy": correct / 10,
        "correct": correct,
        "total": 10,
        "interval": [0.0, 1.0],
        "balanced_accuracy": correct / 10,
        "levels": [{"grid": "8", "correct": correct, "total": 10}],
    }


def example(name: str = "arrn_small", seed: int = 0, **changes: Any) -> Result:
    ways = [(True, "exact", 0), (True, "cheap", 1), (False, "exact", 2), (False, "cheap", 2)]
    answers = [answer(r, adapt, policy, 5 + n) for r in (8, 4) for adapt, policy, n in ways]
    origin = {"arrn": "0.1.0", "torch": "2.14", "commit": None, "gpu": None}
    facts = {"split": "test", "resampler": "perfect", "skipped": 0, "provenance": origin}
    content: dict[str, Any] = {
        "name": name,
        "experiments": ("robustness", "ablation"),
        "model": {"name": "arrn_small", "options": {"dropout": 0.4}},
        "kernel": "perfect",
        "dropout": 0.4,
        "dataset": "sample",
        "split": "test",
        "seed": seed,
        "recipe": {"epochs": 3, "policy": "exact", "resolutions": []},
        "parameters": {"base": 10, "total": 20},
        "multiply_adds": [{"resolution": 8, "adapt": True, "multiply_adds": 100}],
        "report": Report("arrn_small", "sample", answers, facts),
        "training_seconds": 1.5,
        "provenance": origin,
        "command": "arrn reproduce robustness --dataset sample",
        "discrepancies": [{"resolution": 4, "discrepancy": 1e-7}],
        "timings": [],
        "own_kernel": [],
    }
    return Result(**(content | changes))


def test_a_result_comes_back_as_it_was_written(tmp_path: Path) -> None:
    report = Report("resnet18", "sample", [answer(8, None, None, 3)], example().report.facts)
    rival = example("resnet18", dropout=None, kernel=None, report=report)
    results = [example("arrn_small"), example("arrn_small", seed=1), rival]
    paths = [write_result(result, tmp_path) for result in results]
    assert paths[1] == tmp_path / "sample" / "arrn_small-seed1.json"
    assert [result.document() for result in read_results(tmp_path)] == [result.document() for result in results]


def test_points_are_those_of_the_runs_own_policy() -> None:
    result = example()
    assert result.accuracies() == {4: 0.5, 8: 0.5}
    assert result.accuracies(adapt=False) == {4: 0.7, 8: 0.7}
    cheap = example(recipe={"epochs": 3, "policy": "cheap", "resolutions": []})
    assert cheap.accuracies() == {4: 0.6, 8: 0.6}
    report = Report("resnet18", "sample", [answer(8, None, None, 3)], result.report.facts)
    fixed = example("resnet18", dropout=None, report=report)
    assert fixed.accuracies() == fixed.accuracies(adapt=False) == {8: 0.3}


def test_images_lowered_by_the_networks_own_kernel_are_a_second_report() -> None:
    result = example()
    assert result.lowered_by_own_kernel() is result  # the perfect kernel is its own
    assert example(kernel="poor").lowered_by_own_kernel() is None
    assert example("resnet18", dropout=None, kernel=None).lowered_by_own_kernel() is None
    own = [answer(8, True, "exact", 1), answer(8, False, "exact", 2)]
    lowered = example(kernel="poor", own_kernel=own).lowered_by_own_kernel()
    assert lowered is not None
    assert (lowered.accuracies(), lowered.accuracies(adapt=False)) == ({8: 0.1}, {8: 0.2})


def test_a_file_from_before_there_was_a_second_report_is_read(tmp_path: Path) -> None:
    path = write_result(example(), tmp_path)
    document = json.loads(path.read_text())
    del document["own_kernel"]
    path.write_text(json.dumps(document))
    (result,) = read_results(tmp_path)
    assert not result.own_kernel


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": True}, r"seed should be int, got True"),
        ({"seed": "0"}, r"seed should be int, got '0'"),
        ({"parameters": {"base": 1}}, r"parameters has no 'total'"),
        ({"multiply_adds": {}}, r"multiply_adds should be a list, got {}"),
        ({"timings": [3]}, r"timings\[0\] should be an object, got 3"),
        ({"training_seconds": float("inf")}, r"training_seconds should be a finite number, got inf"),
        ({"recipe": {"epochs": 3, "policy": "x", "resolutions": []}}, r"no results for the run's own policy, 'x'"),
        ({"own_kernel": [{"resolution": 8}]}, r"own_kernel\[0\] has no 'adapt'"),
        ({"experiments": ["speed"]}, r"experiments are robustness, .*; got 'speed'"),
    ],
)
def test_a_file_that_is_no_result_is_named_with_its_field(tmp_path: Path, change: Any, message: str) -> None:
    path = write_result(example(), tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ArrnError, match=f"arrn_small-seed0.json.*{message}"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"interval": []}, r"results\[1\].interval should be two numbers, got \[\]"),
        ({"interval": [0, 2**63 - 1]}, r"results\[1\]: accuracies, agreement and interval should be from 0 to 1"),
        ({"accuracy": -1}, r"results\[1\]: accuracies, agreement and interval should be from 0 to 1"),
        ({"agreement": {"a": 1}}, r"results\[1\].agreement should be"),
        ({"resolution": 0}, r"results\[1\].resolution should be at least 1, got 0"),
        ({"total": -3}, r"results\[1\].total should be at least 1, got -3"),
    ],
)
def test_an_answer_that_no_figure_could_show_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = write_result(example(), tmp_path)
    document = json.loads(path.read_text())
    document["report"]["results"][1] |= change
    path.write_text(json.dumps(document))
    with pytest.raises(ArrnError, match=message):
        read_results(tmp_path)


def test_a_folder_that_is_not_there_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(ArrnError, match="not a folder of results; `arrn reproduce` writes them"):
        read_results(tmp_path / "nowhere")


def test_every_field_of_the_shape_is_needed() -> None:
    document = json.loads(json.dumps(example().document()))
    check_shape(document, RESULT_SHAPE, "result")
    for name in RESULT_SHAPE:
        broken = copy.deepcopy(document)
        del broken[name]
        with pytest.raises(ArrnError, match=f"result has no '{name}'"):
            check_shape(broken, RESULT_SHAPE, "result")


@pytest.mark.skipif(not KEPT.is_dir(), reason="no results are kept yet")
def test_the_results_kept_with_the_project_are_valid() -> None:
    for result in read_results(KEPT):
        assert result.points(), result.name
        assert (KEPT / result.dataset / f"{result.name}-seed{result.seed}.json").exists()
