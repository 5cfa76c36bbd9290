"""What a run was trained on is kept with it, and another training set is not taken for the same."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from arrn.data import open_dataset
from arrn.errors import ArrnError
from arrn.runs import Machine, RunSettings, evaluate_run, is_finished, run_training
from arrn.runs.settings import read_settings
from arrn.runs.splits import TrainedOn, describe_samples
from small_runs import tiny_settings, write_mixed_folder

HELD_OUT = 3


def described(root: Path) -> TrainedOn:
    return describe_samples(open_dataset(str(root)).train)


def rename_a_class(data: Path) -> None:
    for split in ("train", "test"):
        (data / split / "blue").rename(data / split / "violet")


def remove_a_class(data: Path) -> None:
    for split in ("train", "test"):
        shutil.rmtree(data / split / "blue")


def remove_a_file(data: Path) -> None:
    (data / "train" / "red" / "001.png").unlink()


def rename_a_file(data: Path) -> None:
    (data / "train" / "red" / "001.png").rename(data / "train" / "red" / "1.png")


def change_a_label(data: Path) -> None:
    """As many of each class as before, and no new name: but two have changed places."""
    (data / "train" / "red" / "001.png").rename(data / "train" / "green" / "100.png")
    (data / "train" / "green" / "001.png").rename(data / "train" / "red" / "100.png")


CHANGES: list[tuple[Callable[[Path], None], str]] = [
    (rename_a_class, "class 0 was 'blue' and is now 'green'"),
    (remove_a_class, r"it had 3 classes and now has 2 \('blue' is in one of them only\)"),
    (remove_a_file, "it had 18 samples and now has 17"),
    (rename_a_file, "it still has 18 samples, but their names, their labels or their order changed"),
    (change_a_label, "it still has 18 samples, but their names, their labels or their order changed"),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `data` and a finished `run` on it, with some held out."""
    root = tmp_path_factory.mktemp("trained")
    run_training(held_out(write_mixed_folder(root / "data", [(8, 8)], 6)), root / "run", Machine("cpu"))
    return root


def held_out(data: Path) -> RunSettings:
    return dataclasses.replace(tiny_settings(data, epochs=1, batch_size=5), holdout=HELD_OUT)


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    """The same elsewhere, to be changed."""
    return Path(shutil.copytree(trained, tmp_path / "copied"))


def unfinish(run: Path) -> None:
    (run / "config.json").unlink()


def forget(run: Path) -> None:
    """As a run was before this was written down."""
    document = json.loads((run / "run.json").read_text())
    del document["trained_on"]
    (run / "run.json").write_text(json.dumps(document))


def test_it_depends_on_names_and_labels_and_not_on_where_they_lie(tmp_path: Path) -> None:
    before = described(write_mixed_folder(tmp_path / "here", [(8, 8)], 2))
    assert (before.class_names, before.samples) == (("blue", "green", "red"), 6)
    shutil.copytree(tmp_path / "here", tmp_path / "far" / "away")
    assert described(tmp_path / "far" / "away") == before
    shutil.copytree(tmp_path / "here" / "train", tmp_path / "bare")  # classes at once, without splits
    assert described(tmp_path / "bare") == before


def test_the_record_is_of_all_samples_that_some_are_held_out_of(trained: Path) -> None:
    document = json.loads((trained / "run" / "run.json").read_text())
    assert document["samples"] == 18 - HELD_OUT
    record = document["trained_on"]
    assert TrainedOn(tuple(record["class_names"]), record["samples"], record["digest"]) == described(trained / "data")


@pytest.mark.parametrize(("change", "message"), CHANGES)
@pytest.mark.parametrize("split", ["validation", "train"])
def test_evaluation_on_samples_of_another_training_set_is_refused(
    copied: Path, change: Callable[[Path], None], message: str, split: str
) -> None:
    data, run = copied / "data", copied / "run"
    assert evaluate_run(run, [8], data=str(data), split=split, device="cpu").results  # where it lies does not matter
    change(data)
    with pytest.raises(ArrnError, match=f"is not the one that the run in .*run was trained on: {message}"):
        evaluate_run(run, [8], data=str(data), split=split, device="cpu")


def test_the_test_split_may_be_evaluated_whatever_became_of_the_training_set(copied: Path) -> None:
    remove_a_file(copied / "data")
    assert evaluate_run(copied / "run", [8], data=str(copied / "data"), device="cpu").results
    assert evaluate_run(copied / "run", [8], dataset=str(copied / "data"), split="train", device="cpu").results


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_going_on_with_another_training_set_is_refused(
    copied: Path, change: Callable[[Path], None], message: str
) -> None:
    unfinish(copied / "run")
    settings = read_settings(copied / "run")
    assert settings is not None
    moved = dataclasses.replace(settings, data=str(copied / "data"))
    change(copied / "data")
    with pytest.raises(ArrnError, match=f"is not the one that the run in .*run was trained on: {message}"):
        run_training(moved, copied / "run", Machine("cpu"), resume=True)


def test_runs_from_before_it_was_written_down_go_on_and_are_evaluated(copied: Path) -> None:
    data, run = copied / "data", copied / "run"
    forget(run)
    assert evaluate_run(run, [8], data=str(data), split="validation", device="cpu").results
    unfinish(run)
    settings = read_settings(run)
    assert settings is not None
    run_training(dataclasses.replace(settings, data=str(data)), run, Machine("cpu"), resume=True)
    assert is_finished(run)
    remove_a_file(data)  # from now on it is known
    with pytest.raises(ArrnError, match="it had 18 samples and now has 17"):
        evaluate_run(run, [8], data=str(data), split="validation", device="cpu")


@pytest.mark.parametrize("record", [3, {}, {"class_names": ["a"], "samples": "many", "digest": ""}])
def test_something_else_in_its_place_is_named(copied: Path, record: object) -> None:
    document = json.loads((copied / "run" / "run.json").read_text())
    (copied / "run" / "run.json").write_text(json.dumps(document | {"trained_on": record}))
    with pytest.raises(ArrnError, match=r"run\.json: trained_on should have class_names, samples and digest"):
        evaluate_run(copied / "run", [8], data=str(copied / "data"), split="validation", device="cpu")
