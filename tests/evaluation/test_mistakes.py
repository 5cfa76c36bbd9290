"""Mistakes: counted class by class, matched with the samples they were made on, the surest first."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arrn.data import Placement, Selection, examine, open_batches, open_dataset
from arrn.errors import ArrnError
from arrn.evaluation import MATRIX_UP_TO, Answers, Setting, by_class, leading_answers, sample_order, worst_mistakes
from arrn.teamwork import Team
from small_runs import write_mixed_folder

CPU = torch.device("cpu")
SIZES = [(8, 8), (5, 7), (8, 8), (3, 3)]


def answers_of(labels: list[int], predictions: list[int], chances: list[float] | None = None) -> Answers:
    grids = ((8, 8),) * len(labels)
    return Answers(
        Setting(4, True, "exact"), torch.tensor(predictions), torch.tensor(labels), grids, torch.tensor(chances or [])
    )


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=60), st.booleans())
def test_few_and_many_classes_are_counted_alike(pairs: list[tuple[int, int]], many: bool) -> None:
    labels, predictions = map(list, zip(*pairs, strict=True))
    found = by_class(answers_of(labels, predictions), classes=MATRIX_UP_TO + 1 if many else 5)
    assert found["correct"][:5] == [pairs.count((n, n)) for n in range(5)]
    if many:
        assert "confusion" not in found
        assert {(t, a): n for t, a, n in found["confused"]} == {p: pairs.count(p) for p in pairs if p[0] != p[1]}
        assert [n for *_, n in found["confused"]] == sorted((n for *_, n in found["confused"]), reverse=True)
    else:
        assert found["confusion"] == [[pairs.count((t, a)) for a in range(5)] for t in range(5)]


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("stream", [False, True])
def test_answers_are_matched_with_the_samples_of_mixed_sizes(tmp_path: Path, stream: bool, size: int) -> None:
    test = open_dataset(str(write_mixed_folder(tmp_path, SIZES, per_class=7))).test
    assert test is not None
    examined = examine(Selection(test, [5, 3, 1, 0, *range(6, 21)]))
    labels, order = [], []
    for rank in range(size):
        with open_batches(
            examined, Placement.unchanged(examined.sizes), batch_size=2, device=CPU, stream=stream, workers=0
        ) as batches:
            batches.team = Team(rank, size)
            labels += [int(label) for batch in batches.in_order() for label in batch.labels]
            order = sample_order(examined.sizes, batches)
    assert sorted(order) == list(range(19))
    assert [int(examined.source.labels[index]) for index in order] == labels


def test_the_surest_wrong_answers_come_first_as_the_network_saw_them() -> None:
    test = open_dataset("sample").test
    assert test is not None
    labels = test.labels[:4].tolist()
    wrong = [(label + 1) % 10 for label in labels]
    answers = answers_of(labels, [labels[0], *wrong[1:]], [1.0, 0.3, 0.9, 0.5])
    order = [3, 2, 1, 0]  # as if the samples had been answered backwards
    found = worst_mistakes(answers, test, order, count=2)
    assert [mistake.probability for mistake in found] == pytest.approx([0.9, 0.5])
    assert [mistake.where for mistake in found] == [test.where(1), test.where(0)]
    assert [(mistake.truth, mistake.answer) for mistake in found] == [(labels[n], wrong[n]) for n in (2, 3)]
    assert {mistake.sample.shape for mistake in found} == {(3, 4, 4)}
    mean = test.read(1).float().mean(dim=(1, 2))
    assert torch.allclose(found[0].sample.mean(dim=(1, 2)), mean, atol=1e-3)
    assert worst_mistakes(answers_of(labels, labels, [1.0] * 4), test, order, count=2) == []
    with pytest.raises(ArrnError, match="need the probabilities"):
        worst_mistakes(Answers(Setting(), test.labels, test.labels, ()), test, order, count=2)


def test_the_networks_own_policy_with_skipping_leads_and_samples_as_they_come_are_first() -> None:
    ways = [Setting(r, a, p) for r in (8, None, 16) for a in (False, True) for p in ("exact", "cheap")]
    answers = [Answers(way, torch.zeros(1), torch.zeros(1), ((8, 8),)) for way in ways]
    assert [each.setting for each in leading_answers(answers, "cheap")] == [
        Setting(resolution, True, "cheap") for resolution in (None, 16, 8)
    ]
    fixed = [Answers(Setting(8), torch.zeros(1), torch.zeros(1), ((8, 8),))]
    assert leading_answers(fixed, None) == fixed
