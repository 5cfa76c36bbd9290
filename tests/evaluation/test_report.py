"""The report: the format that others read, what it says about agreement, and its intervals against scipy's."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

import arrn
from arrn.data import Bucket, MemoryBatches, Normalisation
from arrn.errors import ArrnError
from arrn.evaluation import (
    Report,
    Setting,
    default_resolutions,
    evaluate,
    make_report,
    settings_for,
    wilson_interval,
    write_report,
)
from arrn.testing import awaken_norms
from small_runs import TINY


def report_on(kind: str, kernel: str = "perfect", **options: object) -> Report:
    torch.manual_seed(2)
    model = arrn.create_model(kind, num_classes=5, kernel=kernel, **options)
    if kind == "arrn":
        awaken_norms(model, torch.randn(8, 3, 8, 8), 0)
    bucket = Bucket(torch.randint(0, 256, (40, 3, 8, 8), dtype=torch.uint8), torch.arange(40) % 5)
    normalisation = Normalisation((0.5,) * 3, (0.29,) * 3)
    answers = evaluate(model, MemoryBatches([bucket], 16, 0), settings_for(model, [8, 6, 4]), normalisation)
    return make_report(answers, model=kind, dataset="noise", split="test", resampler="perfect")


@pytest.fixture(scope="module")
def adaptive() -> Report:
    return report_on("arrn", **TINY)


def test_the_file_is_what_design_promises(adaptive: Report, tmp_path: Path) -> None:
    path = tmp_path / "new" / "evaluation.json"
    write_report(adaptive, path)
    document = json.loads(path.read_text())
    assert document["model"] == "arrn"
    assert document["dataset"] == "noise"
    assert {"arrn", "torch", "commit", "gpu"} <= set(document["provenance"])
    for result in document["results"]:
        assert {"resolution", "adapt", "policy", "accuracy", "correct", "total"} <= set(result)
        assert isinstance(result["resolution"], int)
        assert isinstance(result["adapt"], bool)
        assert result["policy"] in ("exact", "cheap")
        assert result["accuracy"] == result["correct"] / result["total"]
        assert result["total"] == 40
        assert result["interval"] == pytest.approx(wilson_interval(result["correct"], 40))
    assert [(r["resolution"], r["adapt"], r["policy"]) for r in document["results"]] == [
        (resolution, adapt, policy)
        for resolution in (8, 6, 4)
        for adapt in (True, False)
        for policy in ("exact", "cheap")
    ]


def test_fixed_networks_have_neither_adaptation_nor_policy() -> None:
    results = report_on("resnet18_small_stem", size=8, width=2).results
    assert [(r["resolution"], r["adapt"], r["policy"]) for r in results] == [(n, None, None) for n in (8, 6, 4)]
    assert all("agreement" not in result for result in results)


def test_skipping_levels_agrees_with_running_all_for_a_perfect_kernel(adaptive: Report) -> None:
    agreement = {r["policy"]: r["agreement"] for r in adaptive.results if r["adapt"] and r["resolution"] == 6}
    assert agreement["exact"] == 1.0
    assert agreement["cheap"] < 1.0  # it throws away what the lower grid does not hold
    assert all("agreement" not in result for result in adaptive.results if not result["adapt"])


def test_resolutions_go_down_to_an_eighth_and_include_the_networks_own() -> None:
    assert default_resolutions(None, 64) == (64, 56, 48, 40, 32, 24, 16, 12, 8)
    model = arrn.create_model("arrn", sizes=(30, 10, 5), features=(4, 4, 4), depth=1)
    assert {30, 10, 5} <= set(default_resolutions(model, 32))
    assert max(default_resolutions(model, 16)) == 16
    assert default_resolutions(None, 1) == (1,)
    assert default_resolutions(model, 1200) == default_resolutions(model, 30)  # above its ladder is nothing to tell
    for other in ("resnet18_small_stem", "fourier_operator"):
        assert max(default_resolutions(arrn.create_model(other, size=8), 64)) == 8


def test_settings_can_be_narrowed() -> None:
    model = arrn.create_model("arrn", **TINY)
    assert settings_for(model, [8], ["cheap"], [True]) == [Setting(8, True, "cheap")]
    assert settings_for(arrn.create_model("fourier_operator"), [8], ["cheap"], [True]) == [Setting(8, None, None)]


def test_a_file_that_cannot_be_written_is_an_error_in_words(adaptive: Report, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArrnError, match="cannot write"):
        write_report(adaptive, tmp_path / "file" / "evaluation.json")


counts = st.integers(1, 20_000).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total)))


@given(counts)
def test_the_interval_is_scipys(count: tuple[int, int]) -> None:
    reference = binomtest(*count).proportion_ci(0.95, method="wilson")
    assert wilson_interval(*count) == pytest.approx((reference.low, reference.high), abs=1e-12)


@given(counts)
def test_the_interval_lies_in_0_to_1_around_the_share(count: tuple[int, int]) -> None:
    low, high = wilson_interval(*count)
    assert 0 <= low <= count[0] / count[1] <= high <= 1


@pytest.mark.parametrize("count", [(0, 0), (3, 2), (-1, 5)])
def test_impossible_counts_are_refused(count: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="0 <= correct <= total"):
        wilson_interval(*count)
