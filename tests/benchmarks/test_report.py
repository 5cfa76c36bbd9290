"""Benchmarks as documents, what they hold, and two of them side by side."""

import json
from pathlib import Path

import pytest
import torch

from arrn.benchmarks import (
    SUBJECTS,
    BenchmarkReport,
    BenchmarkSettings,
    Measurement,
    compare,
    pick_subjects,
    read_benchmark,
    run_benchmark,
    write_benchmark,
)
from arrn.benchmarks.floors import Ceilings
from arrn.benchmarks.step import benchmark_augmentation, benchmark_recipe
from arrn.errors import ArrnError
from arrn.timing import Timing
from small_runs import TINY


def timed(subject: str, case: str, way: str, seconds: float, spread: float = 0.1) -> Measurement:
    half = seconds * spread / 2
    return Measurement(subject, case, way, Timing(seconds, seconds - half, seconds + half))


def report(*measurements: Measurement, **origin: object) -> BenchmarkReport:
    return BenchmarkReport(measurements, provenance=origin)


@pytest.fixture(scope="module")
def measured() -> BenchmarkReport:
    """Everything that can be measured of a tiny network, in no meaningful time."""
    settings = BenchmarkSettings(
        "arrn", {**TINY, "dropout": 0.5}, batches=[2], baselines=["resnet18_small_stem"], compiled=False, quick=True
    )
    pytest.importorskip("torchvision")
    return run_benchmark(list(SUBJECTS), settings)


def test_every_subject_is_measured_against_its_reference(measured: BenchmarkReport) -> None:
    assert {m.subject for m in measured.measurements} == {*SUBJECTS} - {
        "recipe"
    }  # its ladder has not the recipe's shares
    assert all(m.failure is None for m in measured.measurements)
    assert len({m.key for m in measured.measurements}) == len(measured.measurements)
    assert all(m.faster for m in measured.measurements)
    # Of other runtimes than PyTorch no floor is known.
    assert all(m.over_floor and m.over_floor > 0 for m in measured.measurements if m.subject != "deploy")
    firsts = {m.case: m for m in reversed(measured.measurements)}
    assert all(m.faster == 1.0 for m in firsts.values())
    assert measured.provenance["torch"] == torch.__version__
    assert measured.settings["model"] == "arrn"


def test_a_step_is_measured_in_each_draw(measured: BenchmarkReport) -> None:
    sample, stratified = (m for m in measured.measurements if m.subject == "step")
    assert (sample.way, stratified.way) == ("reference", "stratified draw")
    assert sample.floors is not None
    assert stratified.floors is not None
    assert stratified.floors.arithmetic < sample.floors.arithmetic  # each against what it has to do itself
    assert sample.facts["batch"] == 2
    assert sample.facts["images_per_second"] == pytest.approx(2 / sample.time.median)


def test_inference_is_measured_with_and_without_adaptation_beside_baselines(measured: BenchmarkReport) -> None:
    inference = [m for m in measured.measurements if m.subject == "inference"]
    lines = {(m.facts["model"], m.facts["adapt"], m.facts["resolution"], m.way) for m in inference}
    ways = ("reference", "fused")
    assert lines == {("arrn", adapt, size, way) for adapt in (True, False) for size in (8, 4) for way in ways} | {
        ("resnet18_small_stem", None, size, way) for size in (8, 4) for way in ways
    }
    by_size = {m.facts["resolution"]: m for m in inference if m.facts["adapt"] and m.way == "fused"}
    assert by_size[4].facts["multiply_adds"] < by_size[8].facts["multiply_adds"]
    assert by_size[8].facts["time_falls"] == by_size[8].facts["work_falls"] == 1.0
    low = by_size[4].facts
    assert low["work_falls"] == by_size[8].facts["multiply_adds"] / low["multiply_adds"]
    assert low["time_falls"] == pytest.approx(by_size[8].time.median / by_size[4].time.median)
    assert low["falls_kept"] == pytest.approx(low["time_falls"] / low["work_falls"])
    assert low["test_set_seconds"] == pytest.approx(by_size[4].time.median / 2 * 10_000)
    assert all(m.facts["folded"] for m in inference)


def test_a_benchmark_is_written_and_read_again(measured: BenchmarkReport, tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "b.json"
    write_benchmark(measured, path)
    assert read_benchmark(path) == measured
    document = json.loads(path.read_text())
    assert (document["format"], document["format_version"]) == ("arrn-benchmark", 1)
    assert {"torch", "processor", "gpu", "commit"} <= document["provenance"].keys()
    with pytest.raises(ArrnError, match="cannot write"):
        write_benchmark(measured, Path("/proc/nowhere/b.json"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not valid JSON"),
        ('{"format": "arrn"}', '"format": "arrn-benchmark"'),
        ('{"format": "arrn-benchmark", "format_version": 2}', "upgrade arrn"),
        ('{"format": "arrn-benchmark", "format_version": 1}', "measurements must be a list, got None"),
        ('{"format": "arrn-benchmark", "format_version": 1, "measurements": [3]}', "must be an object"),
        (
            '{"format": "arrn-benchmark", "format_version": 1, "measurements": [], "ceilings": {"rates": {"a": -1}}}',
            "ceilings must be numbers above 0",
        ),
    ],
)
def test_files_that_are_no_benchmarks(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "b.json"
    path.write_text(content)
    with pytest.raises(ArrnError, match=message) as error:
        read_benchmark(path)
    assert str(path) in str(error.value)


def test_what_moved_is_beyond_both_spreads() -> None:
    before = report(timed("step", "a", "w", 1.0), timed("step", "b", "w", 1.0), timed("step", "c", "w", 1.0, 0.5))
    after = report(timed("step", "a", "w", 0.5), timed("step", "b", "w", 1.05), timed("step", "c", "w", 1.3))
    half, same, noisy = compare(before, after).changes
    assert (half.relative, half.moved) == (-0.5, True)
    assert (same.relative, same.moved) == (pytest.approx(0.05), False)
    assert not noisy.moved  # the first run was too noisy to tell


def test_what_only_one_has_is_told() -> None:
    failed = Measurement("step", "a", "captured", failure="why")
    before = report(
        timed("step", "a", "w", 1.0), timed("step", "a", "captured", 1.0), timed("depthwise", "d", "w", 1.0)
    )
    after = report(timed("step", "a", "w", 1.0), failed, timed("step", "a", "new", 1.0))
    compared = compare(before, after)
    assert [change.key for change in compared.changes] == [("step", "a", "w")]
    assert compared.gone == ["step: a, captured", "depthwise: all 1 measurements"]
    assert compared.new == ["step: a, new"]


def test_what_makes_runs_less_comparable_is_told() -> None:
    compared = compare(report(gpu="one", torch="2"), report(gpu="another", torch="2"))
    assert compared.differences == ["gpu: one -> another"]


def test_subjects_by_name() -> None:
    assert pick_subjects("all") == ["step", "inference", "resampling", "depthwise", "augmentation", "recipe", "deploy"]
    assert pick_subjects("step") == ["step"]
    with pytest.raises(ArrnError, match="unknown subject 'steps'; did you mean 'step'"):
        pick_subjects("steps")


def test_ceilings_may_be_missing(tmp_path: Path) -> None:
    for ceilings in (None, Ceilings(1e9, {"float32": 1e12})):
        whole = BenchmarkReport([], ceilings)
        write_benchmark(whole, tmp_path / "b.json")
        assert read_benchmark(tmp_path / "b.json") == whole


@pytest.mark.slow
def test_a_step_of_the_frontier_recipe_is_compared_with_that_of_rivals() -> None:
    pytest.importorskip("torchvision")
    settings = BenchmarkSettings(
        "arrn_mini", {"width": 4}, batches=[16], baselines=["resnet18_switchable"], compiled=False, quick=True
    )
    rival, ours = benchmark_recipe(settings, Ceilings(1.0, {}))
    assert (rival.way, ours.way) == ("resnet18_switchable", "arrn_mini")
    assert rival.failure is ours.failure is None
    assert ours.faster is not None
    assert ours.faster > 1  # with 4 channels against 64


def test_the_augmentation_is_measured_within_a_step_and_for_images_only(measured: BenchmarkReport) -> None:
    without, with_it = (m for m in measured.measurements if m.subject == "augmentation")
    assert (without.way, with_it.way) == ("reference", "with TrivialAugmentWide")
    assert without.faster == 1
    assert with_it.time is not None
    sound = BenchmarkSettings("arrn", {"sizes": (8, 4), "features": (2, 2), "depth": 1, "ndim": 1}, quick=True)
    assert benchmark_augmentation(sound, Ceilings(1.0, {})) == []
