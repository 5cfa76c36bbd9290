"""The search over designs: which there are, which is best."""

import json
from pathlib import Path

import pytest

import arrn
from arrn.evaluation import Report
from arrn.experiments.objectives import find_front
from arrn.experiments.results import Result
from arrn.experiments.sweep import Axes, design_name, permute, rank, write_standings

AXES = Axes([[8, 4], [8, 6, 4]], [[4, 8], [4, 8, 12]], [[2]], [[1, 2]], [0.4, 0.6], ["inverted", "zero_preserving"])


def result(name: str, accuracies: dict[int, float], cost: int, seed: int = 0) -> Result:
    facts = {"split": "validation", "resampler": "perfect", "skipped": 0, "provenance": {}}
    answers = [{"resolution": r, "adapt": True, "policy": "exact", "accuracy": a} for r, a in accuracies.items()]
    costs = [{"resolution": r, "adapt": True, "multiply_adds": cost * r} for r in accuracies]
    recipe = {"epochs": 1, "policy": "exact", "resolutions": []}
    report = Report("arrn", "sample", answers, facts)
    model = {"name": "arrn", "options": {}}
    counts = {"base": 1, "total": 2}
    return Result(
        name, (), model, "perfect", 0.5, "sample", "validation", seed, recipe, counts, costs, report, 1.0, {}, ""
    )


def test_every_combination_is_there_once_and_can_be_built() -> None:
    designs = permute(AXES)
    assert len(designs) == len({design_name(options) for options in designs}) == 2 * 2 * 2 * 2
    for options in designs:
        assert arrn.create_model("arrn", **options).sizes == tuple(options["sizes"])
    again = Axes([[8, 4], [8, 4]], [[4, 8], [4, 6, 8]], [[2], [2, 2]], [[1]], [0.4])
    assert len(permute(again)) == 1  # what comes out the same is one design


def test_lists_are_fitted_to_the_ladder() -> None:
    ladders = [[16, 8], [16, 12, 8], [32, 16, 12, 8]]
    designs = permute(Axes(ladders, [[4, 8, 12]], [[3]], [[1, 2]], [0.4]))
    assert [options["features"] for options in designs] == [[4, 12], [4, 8, 12], [4, 8, 8, 12]]
    assert [options["depth"] for options in designs] == [[1, 2], [1, 1, 2], [1, 1, 1, 2]]
    assert [options["expansion"] for options in designs] == [[3] * 2, [3] * 3, [3] * 4]


def test_designs_are_ranked_by_the_mean_over_resolutions_and_seeds() -> None:
    runs = [
        result("a", {8: 0.6, 4: 0.2}, cost=10),
        result("b", {8: 0.5, 4: 0.5}, cost=20),
        result("c", {8: 0.9, 4: 0.1}, cost=30),
        result("c", {8: 0.9, 4: 0.3}, cost=30, seed=1),
        result("d", {8: 0.3, 4: 0.3}, cost=40),
    ]
    standings = rank(runs)
    assert [(standing.name, round(standing.mean_accuracy, 3)) for standing in standings] == [
        ("c", 0.55),
        ("b", 0.5),
        ("a", 0.4),
        ("d", 0.3),
    ]
    assert standings[0].multiply_adds == 240
    assert standings[0].accuracies == pytest.approx({8: 0.9, 4: 0.2})
    assert [standing.name for standing in find_front(standings)] == ["a", "b", "c"]


def test_the_table_as_json(tmp_path: Path) -> None:
    standings = rank([result("a", {8: 0.5}, 10), result("b", {8: 0.4}, 20)])
    write_standings(tmp_path / "deep" / "sweep.json", standings, {"a"}, {"command": "arrn sweep"})
    document = json.loads((tmp_path / "deep" / "sweep.json").read_text())
    assert document["command"] == "arrn sweep"
    assert [(row["name"], row["on_front"]) for row in document["designs"]] == [("a", True), ("b", False)]


def test_levels_below_the_base_are_a_choice() -> None:
    axes = Axes([[8, 4]], [[4, 8]], [[2]], [[1]], [0.5], blockless=[(), (3, 2)])
    plain, lower = permute(axes)
    assert (plain["blockless"], lower["blockless"]) == ([], [3, 2])
    assert design_name(lower) == "8-4_f4-8_e2-2_d1-1_b3-2_p0.5_inverted"


def test_a_size_of_the_ladder_needs_no_level_without_a_block() -> None:
    designs = permute(Axes([[8, 4], [8, 6, 4]], [[4, 8]], [[2]], [[1]], [0.5], blockless=[(12, 6, 2)]))
    assert [options["blockless"] for options in designs] == [[6, 2], [2]]


def test_blocks_and_what_they_lose_are_choices() -> None:
    axes = Axes([[8, 4]], [[4, 8]], [[2]], [[1]], [0.5], repeats=[(1,), (1, 2)], block_dropout=[0.0, 0.1])
    names = [design_name(options).removeprefix("8-4_f4-8_e2-2_d1-1_") for options in permute(axes)]
    assert names == ["p0.5_inverted", "p0.5_bd0.1_inverted", "r1-2_p0.5_inverted", "r1-2_p0.5_bd0.1_inverted"]
