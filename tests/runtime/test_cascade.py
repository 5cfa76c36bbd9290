"""The cascade: its laws on any probabilities, and on a network."""

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrn.runtime import AnswerList, Cascade, Predictor
from arrn.runtime.answers import make_answer
from arrn.runtime.cascade import Climb, Point, find_points, run_cascade, run_plain
from arrn.runtime.files import Array

COSTS = (700, 200, 50)


class Table(Predictor):
    """Says of an input what its first samples hold: for each level, the probability of class 1 in percent."""

    def run(self, level: int, signals: Sequence[Array]) -> Array:
        self.ran = [*getattr(self, "ran", []), level]
        chances = np.array([signal.reshape(-1)[level] / 100 for signal in signals], np.float32)
        return np.stack([1 - chances, chances], axis=1)


def table(cascade: Cascade | None = None, policy: str = "exact") -> Table:
    grids = [(12,), (6,), (3,)]
    return Table(
        grids=grids, ndim=1, channels=1, costs=COSTS, policy=policy, cascade=cascade, class_names=("no", "yes")
    )


def clip(*percents: int, length: int = 12) -> Array:
    return np.array([*percents, *[0] * (length - 3)], np.uint8)


def test_an_input_climbs_until_the_network_is_sure() -> None:
    sure_at_once, sure_later, never = clip(1, 2, 95), clip(2, 90, 60), clip(70, 55, 52)
    found = table()([sure_at_once, sure_later, never], threshold=0.8)
    assert [answer.level for answer in found] == [(3,), (6,), (12,)]
    assert [answer.multiply_adds for answer in found] == [50, 250, 950]
    assert [answer.name for answer in found] == ["yes"] * 3
    assert [round(answer.probability, 2) for answer in found] == [0.95, 0.9, 0.7]


def test_no_input_climbs_above_its_own_size() -> None:
    found = table()([clip(50, 50, 50, length=n) for n in (3, 5, 9, 12, 40)], threshold=1.0)
    assert [answer.level for answer in found] == [(3,), (6,), (12,), (12,), (12,)]
    cheap = table(policy="cheap")([clip(50, 50, 50, length=n) for n in (3, 5, 9, 12, 40)], threshold=1.0)
    assert [answer.level for answer in cheap] == [(3,), (3,), (6,), (12,), (12,)]


def climbing(*levels: int, threshold: float = 1.0) -> Cascade:
    """A calibration that found one climb over these levels."""
    return Cascade((Point(0.0, 50, 0.5), Point(threshold, 60, 0.6, levels)), Point(None, 1e6, 0.9), 10)


def test_a_climb_visits_its_own_levels_alone_and_none_above_the_input() -> None:
    predictor = table(climbing(0, 2))
    found = predictor([clip(50, 50, 50, length=n) for n in (3, 5, 12)], budget=0.1)
    assert [answer.level for answer in found] == [(3,), (6,), (12,)]
    assert [answer.multiply_adds for answer in found] == [50, 50 + 200, 50 + 700]
    assert table(climbing(0, 2, threshold=0.8))(clip(50, 99, 70), budget=0.1).level == (12,)
    # A climb that ends below the input's size stays there, and one that begins above it runs at the input's own level.
    assert [
        answer.level for answer in table(climbing(1))([clip(50, 50, 50, length=n) for n in (3, 12)], budget=0.1)
    ] == [
        (3,),
        (6,),
    ]


def test_a_calibration_leaves_out_a_level_that_costs_as_much_as_the_next() -> None:
    rng = np.random.default_rng(0)
    low = rng.uniform(0.5, 1, 400)
    right = rng.uniform(size=400) < low
    chances = np.stack([np.ones(400), low, low], axis=1)  # the middle level says what the lowest says
    points = find_points(chances, np.stack([right | True, right, right], axis=1), np.zeros(400, int), (700, 690, 50))
    assert {point.levels for point in points} == {(2,), (0, 2)}
    assert max(point.multiply_adds for point in points) < 700


percent = st.integers(0, 100)
ABOVE_ALL = 1 + 2.0**-20  # what a calibration writes for it
clips = st.lists(st.tuples(percent, percent, percent, st.integers(3, 14)), min_size=1, max_size=12)


@given(clips)
def test_a_threshold_of_0_is_the_lowest_level_and_the_one_above_all_the_plain_answer(
    rows: list[tuple[int, ...]],
) -> None:
    inputs = [clip(*row[:3], length=row[3]) for row in rows]
    predictor = table()
    plain = predictor(inputs)
    assert {answer.level for answer in predictor(inputs, threshold=0)} == {(3,)}
    for answer, same in zip(plain, predictor(inputs, threshold=ABOVE_ALL), strict=True):
        assert (answer.top, answer.level) == (same.top, same.level)
        assert answer.multiply_adds is not None
        assert same.multiply_adds is not None
        assert answer.multiply_adds <= same.multiply_adds


def measured(rows: list[tuple[int, ...]]) -> tuple[Array, Array, Array]:
    chances = np.array([row[:3] for row in rows], np.float32) / np.float32(100)
    confidences = np.maximum(chances, 1 - chances).astype(np.float64)
    highest = np.array([table().level_of((row[3],)) for row in rows])
    return confidences, chances > 0.5, highest


@given(clips)
def test_points_tell_what_a_cascade_costs_and_brings(rows: list[tuple[int, ...]]) -> None:
    found = measured(rows)
    points = find_points(*found, COSTS)
    assert points[0].threshold == 0
    assert points[0].multiply_adds == COSTS[-1]
    for point, better in pairwise(points):
        assert point.multiply_adds < better.multiply_adds
        assert point.accuracy < better.accuracy
    inputs = [clip(*row[:3], length=row[3]) for row in rows]
    for point in points:
        # A budget of exactly this much finds this point.
        predictor = table(Cascade(points, Point(None, 1e9, 1.0), len(rows)))
        answers = predictor(inputs, budget=point.multiply_adds * (1 + 1e-12) / 1e6)
        assert np.mean([answer.multiply_adds for answer in answers]) == pytest.approx(point.multiply_adds)
        assert np.mean([answer.label == 1 for answer in answers]) == pytest.approx(point.accuracy)


@given(clips, st.floats(0, 1.1), st.sets(st.integers(0, 2), min_size=1))
def test_no_climb_beats_those_that_a_calibration_found(
    rows: list[tuple[int, ...]], threshold: float, levels: set[int]
) -> None:
    found = measured(rows)
    paid, hits = run_cascade(*found, COSTS, Climb(threshold, tuple(levels)))
    if paid.mean() < run_plain(*found[1:], COSTS)[0].mean():
        affordable = [point for point in find_points(*found, COSTS) if point.multiply_adds <= paid.mean() + 1e-9]
        assert affordable[-1].accuracy >= hits.mean()


@given(clips, st.floats(50, 1000))
def test_a_budget_is_kept_on_the_inputs_it_was_calibrated_on(rows: list[tuple[int, ...]], budget: float) -> None:
    found = measured(rows)
    paid, hits = run_plain(*found[1:], COSTS)
    plain = Point(None, float(paid.mean()), float(hits.mean()))
    predictor = table(Cascade(find_points(*found, COSTS), plain, len(rows)))
    answers = predictor([clip(*row[:3], length=row[3]) for row in rows], budget=budget / 1e6)
    spent = np.mean([answer.multiply_adds for answer in answers])
    assert spent <= budget
    if plain.multiply_adds <= budget:
        assert spent == plain.multiply_adds


@given(clips, st.floats(0, 1.1))
def test_higher_thresholds_cost_more(rows: list[tuple[int, ...]], threshold: float) -> None:
    found = measured(rows)
    below, _ = run_cascade(*found, COSTS, Climb(threshold / 2))
    above, _ = run_cascade(*found, COSTS, Climb(threshold))
    assert (below <= above).all()


def test_what_no_cascade_can_do_is_told() -> None:
    point = Point(0.0, 50, 0.5)
    cascade = Cascade((point,), Point(None, 700, 0.9), 10)
    for wrong in (-0.1, float("nan"), True, "high", 90):
        with pytest.raises(ValueError, match="a probability from 0 to 1, got"):
            table()([], threshold=wrong)
    with pytest.raises(ValueError, match="needs a calibrated cascade"):
        table()([], budget=1)
    with pytest.raises(ValueError, match=r"either a budget or a threshold, got budget=1 and threshold=0\.5"):
        table(cascade)([], budget=1, threshold=0.5)
    with pytest.raises(ValueError, match="a budget of 1e-05 million multiply-adds is too small: the lowest level"):
        table(cascade)([], budget=1e-5)
    with pytest.raises(ValueError, match="a budget is a number of million multiply-adds, got 'x'"):
        table(cascade)([], budget="x")
    with pytest.raises(ValueError, match="calibrated for the policy 'exact', and this predictor has 'cheap'"):
        table(cascade, policy="cheap")([], budget=1)
    with pytest.raises(ValueError, match="a network of more levels than the 3 of this one"):
        table(climbing(0, 3))([], budget=0.1)


def test_a_calibration_is_kept_as_json() -> None:
    points = (Point(0.0, 50.0, 0.5, (2,)), Point(0.625, 250.0, 0.75, (0, 2)))
    cascade = Cascade(points, Point(None, 700.0, 0.875), 8, "8 clips", "cheap")
    document = json.loads(json.dumps(cascade.to_json()))
    assert Cascade.from_json(document) == cascade
    for name, wrong in (("points", []), ("points", [{"threshold": 0}]), ("plain", None), ("policy", "fast")):
        with pytest.raises(ValueError, match=r"points|cannot be read"):
            Cascade.from_json(document | {name: wrong})
    point = {"threshold": 0, "multiply_adds": 50, "accuracy": 0.5}
    with pytest.raises(ValueError, match="a finite number is expected, got inf"):
        Cascade.from_json(document | {"points": [point | {"multiply_adds": float("inf")}]})
    for levels in ([], [-1], [True], [0.5], [64], "0", 2):
        with pytest.raises(ValueError, match="a list of numbers of levels is expected, got"):
            Cascade.from_json(document | {"points": [point | {"levels": levels}]})


def test_an_older_calibration_climbs_over_all_levels() -> None:
    """Its points name no levels."""
    numbers = [(0, 50, 0.5), (0.9, 600, 0.8)]
    names = ("threshold", "multiply_adds", "accuracy")
    document = {"points": [dict(zip(names, point, strict=True)) for point in numbers], "samples": 8}
    cascade = Cascade.from_json(document | {"plain": {"threshold": None, "multiply_adds": 700, "accuracy": 0.9}})
    assert cascade.climb_for(0.000650) == Climb(0.9)
    assert table(cascade)(clip(70, 99, 70), budget=0.000650).multiply_adds == 250


def test_answers_and_predictors_are_tables_in_a_notebook() -> None:
    evil = "<script>\x1b"
    answer = make_answer(np.array([0.25, 0.75]), ["dog", evil], size=(30, 40), level=(32, 32), top=2, seconds=0.0015)
    page = AnswerList([answer, answer])._repr_html_()
    assert page.count("<tr>") == 3
    assert re.sub("<.*?>+", " ", page).split()[5:] == 2 * [
        *("&lt;script&gt;\\x1b", "dog", "75.0%", "25.0%", "30x40", "32", "1.5", "ms")
    ]
    assert answer._repr_html_().count("<tr>") == 2
    assert repr(answer) == f"Answer({evil!r}, 75.0%, size 30x40, level 32, 1.5 ms)"
    assert AnswerList([answer, answer, answer])[1:]._repr_html_() == page
    assert repr(AnswerList([answer, answer])) == f"[{answer!r},\n {answer!r}]"
    assert " 0 12 0.0 " in re.sub("(<.*?>)+", " ", table()._repr_html_())


def test_results_can_be_written(tmp_path: Path) -> None:
    answer = make_answer(np.array([0.25, 0.75], np.float32), None, size=(3,), level=(3,), top=9)
    (tmp_path / "a.json").write_text(json.dumps(answer.to_json()))
    assert [each["class"] for each in json.loads((tmp_path / "a.json").read_text())["top"]] == [1, 0]
