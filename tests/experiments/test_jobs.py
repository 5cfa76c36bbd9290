"""Jobs: given to a process as a file, and how far they are."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from arrn.errors import ArrnError, RunError
from arrn.experiments import read_results
from arrn.experiments.jobs import Job, carry_out, differences_from, measure_times, read_job, write_job
from arrn.models import DESIGNS, registry
from arrn.models.designs import design_builder
from arrn.runs import Machine, RunSettings
from arrn.runs.run_folder import locked
from arrn.training import Recipe
from small_runs import tiny_settings


def tiny_job(easy: Path, root: Path, **recipe: Any) -> Job:
    settings = tiny_settings(easy, **({"epochs": 1, "batch_size": 9} | recipe))
    machine = Machine("cpu")
    return Job("tiny", settings, root / "runs", root / "results", ("ablation",), machine=machine, command="arrn ...")


@pytest.fixture(scope="module")
def done(easy: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    job = tiny_job(easy, tmp_path_factory.mktemp("jobs"))
    carry_out(job)
    return job


def test_a_job_comes_back_as_it_was_written(tmp_path: Path) -> None:
    recipe = Recipe(resolutions=(8, 4), epochs=3)
    settings = RunSettings("cifar10", "resnet18", {"size": 8}, recipe, 4, 5, True, "/data")
    job = Job("x", settings, tmp_path, tmp_path / "results", ("rivals",), "validation", Machine("cpu", workers=0), "c")
    assert read_job(write_job(job)) == job
    assert write_job(job) == tmp_path / "cifar10" / "x-seed4.job.json"


@pytest.mark.parametrize("job", [None, 3, {}, {"settings": {"recipe": {}}}, {"settings": 3}])
def test_a_file_that_is_no_job_is_named(tmp_path: Path, job: Any) -> None:
    path = tmp_path / "x.job.json"
    path.write_text(json.dumps({"format": "arrn job", "format_version": 1, "job": job}))
    with pytest.raises(ArrnError, match=r"x\.job\.json does not describe a job"):
        read_job(path)


def test_a_name_that_no_file_can_have_is_named(tmp_path: Path) -> None:
    job = Job("x" * 10_000, RunSettings("sample"), tmp_path, tmp_path)
    with pytest.raises(ArrnError, match=r"cannot look for the run 'xxx.*: File name too long"):
        job.state()


def test_a_job_leaves_a_result_of_everything(done: Job) -> None:
    (result,) = read_results(done.results)
    assert (result.name, result.seed, result.dataset, result.split) == ("tiny", 0, done.dataset, "test")
    assert (result.kernel, result.dropout, result.experiments) == ("perfect", 0.4, ("ablation",))
    assert (result.epochs, result.recipe["batch_size"], result.command) == (1, 9, "arrn ...")
    assert list(result.accuracies()) == list(result.accuracies(adapt=False)) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert all(point["agreement"] == 1 for point in result.points())
    assert result.report.results[0]["total"] == 9
    assert result.parameters["base"] < result.parameters["total"]
    assert {entry["resolution"] for entry in result.multiply_adds} == set(range(1, 9))
    assert max(entry["discrepancy"] for entry in result.discrepancies) < 1e-5
    assert result.training_seconds > 0
    assert result.provenance["torch"]
    assert result.timings == []
    assert result.own_kernel == []


def test_images_of_approximate_kernels_are_also_lowered_by_the_networks_own(easy: Path, tmp_path: Path) -> None:
    job = tiny_job(easy, tmp_path)
    poor = dataclasses.replace(job.settings, options=job.settings.options | {"kernel": "poor"})
    said: list[str] = []
    carry_out(dataclasses.replace(job, settings=poor), say=said.append)
    (result,) = read_results(job.results)
    assert "again, with images lowered by the poor kernel" in said
    assert result.report.facts["resampler"] == "perfect"
    settings = [(each["resolution"], each["adapt"], each["policy"]) for each in result.report.results]
    assert [(each["resolution"], each["adapt"], each["policy"]) for each in result.own_kernel] == settings


def test_how_far_a_job_is(easy: Path, done: Job, tmp_path: Path) -> None:
    assert done.state() == "finished"
    assert tiny_job(easy, tmp_path).state() == "to do"
    assert dataclasses.replace(done, results=tmp_path).state() == "to evaluate"
    begun = dataclasses.replace(done, results=tmp_path, out=tmp_path)
    begun.folder.mkdir(parents=True)
    (begun.folder / "run.json").write_bytes((done.folder / "run.json").read_bytes())
    assert begun.state() == "interrupted"


def test_other_settings_are_not_taken_for_the_same_run(easy: Path, done: Job, tmp_path: Path) -> None:
    other = tiny_job(easy, done.out.parent, epochs=2)
    with pytest.raises(ArrnError, match="was started with other settings: epochs was 1 and is now 2; another --out"):
        other.state()
    with pytest.raises(
        ArrnError, match=r"tiny-seed0\.json is the result of a run with other settings: epochs was 1 and is now 2"
    ):
        dataclasses.replace(other, out=tmp_path).state()


def test_a_result_from_before_an_option_was_there_has_its_default(easy: Path, done: Job) -> None:
    result = done.read_result()
    assert result is not None
    older = dataclasses.replace(result, recipe={name: result.recipe[name] for name in list(result.recipe)[:14]})
    assert "shares" not in older.recipe
    assert older.full_recipe == result.full_recipe
    assert not differences_from(older, done.settings)
    cheap = dataclasses.replace(done.settings, recipe=done.settings.recipe.with_options({"policy": "cheap"}))
    assert differences_from(result, cheap) == ["policy was 'exact' and is now 'cheap'"]
    assert not differences_from(dataclasses.replace(result, dropout=None), cheap)  # a network that does not adapt
    changed = dataclasses.replace(done.settings, recipe=done.settings.recipe.with_options({"cutout": 0.5}))
    assert differences_from(older, changed) == ["cutout was 0.0 and is now 0.5"]


def test_a_design_that_changed_since_is_another_run(
    easy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = dataclasses.replace(tiny_settings(easy, epochs=1), model="arrn_small", options={})
    job = dataclasses.replace(tiny_job(easy, tmp_path), settings=settings)
    carry_out(job)
    assert job.state() == "finished"
    deeper = dataclasses.replace(DESIGNS["arrn_small"], depth=(1, 1, 3))
    monkeypatch.setitem(registry._builders, "arrn_small", design_builder(deeper))
    with pytest.raises(ArrnError, match=r"other settings: the number of parameters was \d+ and is now"):
        job.state()


def test_times_are_added_to_the_result_without_the_weights(done: Job, tmp_path: Path) -> None:
    before = done.read_result()
    measure_times(dataclasses.replace(done, out=tmp_path), repeats=1)
    after = done.read_result()
    assert before is not None
    assert after is not None
    assert {(entry["resolution"], entry["adapt"]) for entry in after.timings} == {
        (size, adapt) for size in range(1, 9) for adapt in (True, False)
    }
    assert {entry["samples"] for entry in after.timings} == {9}
    assert dataclasses.replace(after, timings=[]).document() == before.document()


def test_two_processes_do_not_work_on_one_run(easy: Path, tmp_path: Path) -> None:
    job = tiny_job(easy, tmp_path)
    with locked(job.lock), pytest.raises(RunError, match="another process is at work on this run"):
        carry_out(job)
    assert not job.folder.exists()
