"""The search: designs drawn by Optuna, halved round by round, judged by several objectives."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna")

from hypothesis import given
from hypothesis import strategies as st

from arrn.errors import ArrnError, RunError
from arrn.experiments.halving import EveryDesign, Halving, round_epochs
from arrn.experiments.jobs import Job
from arrn.experiments.objectives import MEAN_ACCURACY, MULTIPLY_ADDS, USUAL, choose_best, find_front, read_objectives
from arrn.experiments.study import open_study
from arrn.experiments.supervising import JobProgress
from arrn.experiments.sweep import Axes, Range, Standing, design_name, permute
from arrn.runs import RunSettings
from arrn.training import Recipe

AXES = Axes([[8, 4], [8, 6, 4]], [[4, 8]], [[2]], [[1], [2]], [0.4, 0.6])


def standing(name: str, accuracy: float, cost: int) -> Standing:
    return Standing(name, {}, accuracy, cost, cost, {8: accuracy, 4: 1 - accuracy})


class Finished:
    """The result that a run of a design leaves; better for a larger p."""

    def __init__(self, job: Job) -> None:
        self.name, self.seed, options = job.name, job.settings.seed, job.settings.options
        self.model = {"options": dict(options)}
        self.parameters = {"total": 1}
        self.multiply_adds = [{"resolution": 8, "adapt": True, "multiply_adds": 10 * len(options["sizes"])}]
        self._accuracy = options["dropout"]

    def accuracies(self) -> dict[int, float]:
        return {8: self._accuracy}


@pytest.fixture
def make_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Job]]:
    """Jobs that are finished as soon as their file is there."""
    read = lambda job: Finished(job) if job.file.exists() else None  # noqa: E731
    monkeypatch.setattr(Job, "read_result", read)

    def jobs_of(name: str, options: Mapping[str, Any], epochs: int, seeds: int = 1) -> list[Job]:
        settings = [RunSettings("sample", "arrn", options, Recipe(epochs=epochs), seed) for seed in range(seeds)]
        return [Job(name, each, tmp_path, tmp_path) for each in settings]

    return jobs_of


def carry_out(search: Halving, slots: int = 2, failing: Sequence[str] = ()) -> list[str]:
    """All runs of a search, `slots` at a time; their names, in order."""
    running = search.more([], slots)
    names = []
    while running:
        job = running.pop(0)
        names.append(job.name)
        if job.name not in failing:
            job.file.parent.mkdir(parents=True, exist_ok=True)
            job.file.touch()
        running += search.more([JobProgress(job, "finished")], slots - len(running))
    return names


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12), st.integers(1, 12))
def test_the_front_is_what_none_beats_and_is_kept_first(numbers: list[tuple[int, int]], count: int) -> None:
    all_of_them = [standing(str(n), accuracy / 5, cost) for n, (accuracy, cost) in enumerate(numbers)]
    front = find_front(all_of_them)

    def beats(one: Standing, other: Standing) -> bool:
        as_good = one.mean_accuracy >= other.mean_accuracy and one.multiply_adds <= other.multiply_adds
        return as_good and (one.mean_accuracy, one.multiply_adds) != (other.mean_accuracy, other.multiply_adds)

    names = {each.name for each in front}
    assert names == {each.name for each in all_of_them if not any(beats(other, each) for other in all_of_them)}
    best = choose_best(all_of_them, count)
    assert len(best) == min(count, len(all_of_them))
    assert {each.name for each in best} <= names or names <= {each.name for each in best}


def test_one_objective_is_an_order() -> None:
    three = [standing("a", 0.2, 1), standing("b", 0.6, 9), standing("c", 0.4, 5)]
    assert [each.name for each in choose_best(three, 2, [MEAN_ACCURACY])] == ["b", "c"]
    assert [each.name for each in choose_best(three, 2, [MULTIPLY_ADDS])] == ["a", "c"]


def test_objectives_by_their_names() -> None:
    assert read_objectives("accuracy, multiply-adds", []) == USUAL
    assert [each.name for each in read_objectives("accuracy@8,each", [8, 4])] == ["accuracy@8", "accuracy@4"]
    with pytest.raises(ArrnError, match="the resolutions of this search are 8, 4; got 'accuracy@5'"):
        read_objectives("accuracy@5", [8, 4])
    with pytest.raises(ArrnError, match=r"the objectives are accuracy, .*; got 'speed'"):
        read_objectives("speed", [8, 4])


def test_rounds_need_epochs() -> None:
    with pytest.raises(ArrnError, match="3 rounds need at least 9 epochs in the last one, got 3"):
        round_epochs(3, 3)


def test_a_third_of_each_round_trains_anew_for_longer(make_jobs: Callable[..., list[Job]]) -> None:
    designs = permute(Axes([[8, 4]], [[4]], [[2]], [[1]], [n / 10 for n in range(1, 10)]))
    search = Halving(EveryDesign(designs), round_epochs(9, 3), make_jobs, [MEAN_ACCURACY])
    names = [name.partition("_p")[2] for name in carry_out(search)]
    assert [name for name in names if name.endswith("ep1")] == [f"0.{n}_inverted_ep1" for n in range(1, 10)]
    assert names[9:] == ["0.9_inverted_ep3", "0.8_inverted_ep3", "0.7_inverted_ep3", "0.9_inverted"]
    assert [len(each.standings) for each in search.rounds] == [9, 3, 1]
    gone = sorted((each.name.partition("_p")[2], epochs) for each, epochs in search.gone())
    expected = [(f"0.{n}_inverted", 1) for n in range(1, 7)] + [("0.7_inverted", 3), ("0.8_inverted", 3)]
    assert gone == expected
    # The same command again has nothing to do.
    again = Halving(EveryDesign(designs), round_epochs(9, 3), make_jobs, [MEAN_ACCURACY])
    assert carry_out(again) == []
    assert again.skipped == 13
    assert [each.name for each in again.rounds[-1].standings] == [search.rounds[-1].standings[0].name]


def test_a_design_that_fails_goes_no_further(make_jobs: Callable[..., list[Job]]) -> None:
    designs = permute(Axes([[8, 4]], [[4]], [[2]], [[1]], [0.1, 0.2, 0.3]))
    worst, _, best = (design_name(design) for design in designs)
    search = Halving(EveryDesign(designs), [1, 3], make_jobs, [MEAN_ACCURACY])
    names = carry_out(search, failing=[f"{best}_ep1"])
    assert names[-1] == design_name(designs[1])
    assert {worst, best}.isdisjoint(names)


def test_optuna_draws_each_design_once_and_learns(make_jobs: Callable[..., list[Job]], tmp_path: Path) -> None:
    axes = Axes([[8, 4], [8, 6, 4]], [[4, 8]], [[2]], [[1]], Range(0.0, 0.9))
    with open_study(tmp_path / "a.journal", axes, 40, [MEAN_ACCURACY]) as designs:
        search = Halving(designs, [1], make_jobs, [MEAN_ACCURACY])
        names = carry_out(search, slots=1)
    assert len(names) == len(set(names)) == 40
    drawn = [float(name.partition("_p")[2].partition("_")[0]) for name in names]
    assert sum(drawn[20:]) / 20 > sum(drawn[:10]) / 10  # a larger p is better here


def test_a_search_goes_on_after_it_was_killed(make_jobs: Callable[..., list[Job]], tmp_path: Path) -> None:
    journal = tmp_path / "search.journal"
    with open_study(journal, AXES, 6, USUAL) as designs:
        search = Halving(designs, [1], make_jobs)
        begun = search.more([], 3)
        begun[0].file.parent.mkdir(parents=True, exist_ok=True)
        begun[0].file.touch()
        search.more([JobProgress(begun[0], "finished")], 0)
    with journal.open("a") as file:
        file.write('{"op_code":6,"wor')  # as a crash leaves it
    with open_study(journal, AXES, 6, USUAL) as designs:
        search = Halving(designs, [1], make_jobs)
        names = carry_out(search)
    assert names[:2] == [job.name for job in begun[1:]]
    assert len(names) == len(set(names)) == 5
    assert len(search.rounds[0].standings) == 6
    states = [json.loads(line) for line in journal.read_text().splitlines()]
    assert sum(entry.get("state") == 1 for entry in states) == 6  # complete


def test_a_search_ends_where_there_are_no_more_designs(
    make_jobs: Callable[..., list[Job]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_study(tmp_path / "a.journal", AXES, 50, USUAL) as designs:
        names = carry_out(Halving(designs, [1], make_jobs))
    assert sorted(names) == sorted(design_name(design) for design in permute(AXES))
    assert "200 draws brought no new design: the search ends with" in caplog.text


def test_what_cannot_be_built_is_not_tried(make_jobs: Callable[..., list[Job]], tmp_path: Path) -> None:
    def only_two_sizes(options: Mapping[str, Any]) -> None:
        if len(options["sizes"]) != 2:
            raise ArrnError("too many sizes")

    with open_study(tmp_path / "a.journal", AXES, 3, USUAL, check=only_two_sizes) as designs:
        names = carry_out(Halving(designs, [1], make_jobs))
    assert len(names) == 3
    assert all(name.startswith("8-4_") for name in names)

    def nothing(options: Mapping[str, Any]) -> None:
        raise ArrnError("no")

    with (
        open_study(tmp_path / "b.journal", AXES, 3, USUAL, check=nothing) as designs,
        pytest.raises(ArrnError, match="no design of this search can be built: no"),
    ):
        designs.ask(1)


def test_another_search_is_not_mixed_in(tmp_path: Path) -> None:
    journal = tmp_path / "a.journal"
    with (
        open_study(journal, AXES, 3, USUAL),
        pytest.raises(RunError, match="another process is at work"),
        open_study(journal, AXES, 3, USUAL),
    ):
        pass
    with (
        pytest.raises(ArrnError, match="another --out starts a new search"),
        open_study(journal, AXES, 3, [MEAN_ACCURACY]),
    ):
        pass
    journal.write_text('{"this": "is something else"}\n')
    with pytest.raises(ArrnError, match="is not the journal of a search"), open_study(journal, AXES, 3, USUAL):
        pass


def test_ranges_are_for_searches_that_draw() -> None:
    with pytest.raises(ArrnError, match="p is a range, and only a search with --trials N draws from ranges"):
        permute(Axes([[8, 4]], [[4]], [[2]], [[1]], Range(0.2, 0.8)))
    with pytest.raises(ArrnError, match=r"a range should go from a number to a larger one, got 0\.8:0\.2"):
        Range(0.8, 0.2)
