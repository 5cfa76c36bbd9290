"""What a run does with its folder, its data and its settings."""

import dataclasses
import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import arrn
from arrn.data import Batches
from arrn.errors import ArrnError, RunError
from arrn.evaluation import Answers, Setting, evaluate
from arrn.runs import Machine, RunSettings, is_finished, read_settings, run_training
from arrn.runs.splits import open_run_data, open_split
from arrn.training import Recipe, read_recipe
from arrn.writing import TEMPORARY
from small_runs import (
    TINY_RUN,
    said_by,
    timeless_log,
    tiny_settings,
    train_tiny,
    weights,
    write_easy_set,
    write_mixed_folder,
)


def test_a_finished_run_leaves_everything_that_is_needed(finished: Path, easy: Path) -> None:
    assert is_finished(finished)
    assert sorted(os.listdir(finished)) == [
        *("checkpoints", "config.json", "log.jsonl", "model.safetensors", "recipe.toml", "run.json"),
    ]
    assert os.listdir(finished / "checkpoints")[0].startswith("checkpoint-000")
    model = arrn.load(finished)
    assert model.sizes == (8, 4)
    assert model.metadata.class_names == ("red", "green", "blue")
    assert read_recipe(finished / "recipe.toml") == Recipe(epochs=2, batch_size=4)
    document = json.loads((finished / "run.json").read_text())
    assert document["samples"] == 18
    assert document["provenance"]["torch"] == torch.__version__
    assert read_settings(finished) == tiny_settings(easy)
    log = timeless_log(finished)
    assert [entry["epoch"] for entry in log] == [1, 2]
    assert set(log[0]) == {"epoch", "loss", "accuracy", "learning_rate"}


def test_an_easy_task_is_learnt(tmp_path: Path) -> None:
    data = write_easy_set(tmp_path / "data", train=48)
    out = train_tiny(data, tmp_path / "run", epochs=6, batch_size=8, learning_rate=0.01)
    log = timeless_log(out)
    assert log[-1]["loss"] < 0.6 * log[0]["loss"]
    assert log[-1]["accuracy"] > 0.9


def test_an_empty_folder_is_fine_and_one_with_anything_in_it_is_refused(easy: Path, tmp_path: Path) -> None:
    (tmp_path / ".hidden").write_text("mine")
    with pytest.raises(ArrnError, match="is not empty; --resume continues"):
        train_tiny(easy, tmp_path)
    with pytest.raises(ArrnError, match=r"holds no run \(run.json is missing\) but other files, such as '.hidden'"):
        train_tiny(easy, tmp_path, resume=True)
    (tmp_path / ".hidden").unlink()
    assert is_finished(train_tiny(easy, tmp_path, epochs=1))


def test_bad_input_leaves_no_folder_behind_but_takes_none_away(tmp_path: Path) -> None:
    for name, was_there in (("new", False), ("mine", True)):
        out = tmp_path / name
        if was_there:
            out.mkdir()
        with pytest.raises(ArrnError, match="nowhere"):
            train_tiny(tmp_path / "nowhere", out)
        assert out.exists() is was_there


def test_what_a_killed_process_left_does_not_stand_in_the_way(easy: Path, tmp_path: Path) -> None:
    leftover = tmp_path / f".run.json.x{TEMPORARY}"
    leftover.write_text("half")
    assert is_finished(train_tiny(easy, tmp_path, epochs=1))
    assert not leftover.exists()
    (tmp_path / "config.json").unlink()
    others = [tmp_path / f".config.json.x{TEMPORARY}", tmp_path / "checkpoints" / f".checkpoint-0001.x{TEMPORARY}"]
    for leftover in others:
        leftover.write_text("half")
    assert is_finished(train_tiny(easy, tmp_path, epochs=1, resume=True))
    assert not any(leftover.exists() for leftover in others)


def test_resume_without_a_checkpoint_starts_afresh_and_says_so(easy: Path, tmp_path: Path, finished: Path) -> None:
    out = tmp_path / "run"
    said = said_by(tiny_settings(easy), out, resume=True)
    assert said[1:] == [f"there is no checkpoint in {out} yet: starting afresh"]
    assert weights(out) == weights(finished)


class Killed(BaseException):
    """As if the process had been killed."""


@contextmanager
def killed_in(name: str) -> Iterator[None]:
    """A run within it comes no further than that function."""

    def kill(*arguments: object, **named: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(f"arrn.runs.training.{name}", kill)
        with pytest.raises(Killed):
            yield


def test_killed_while_samples_are_read_it_is_known_what_was_to_be_trained(
    easy: Path, tmp_path: Path, finished: Path
) -> None:
    out = tmp_path / "run"
    with killed_in("open_run_data"):
        train_tiny(easy, out)
    assert os.listdir(out) == ["run.json"]
    assert read_settings(out) == tiny_settings(easy)
    with pytest.raises(ArrnError, match="was started with other settings: epochs was 2 and is now 3"):
        train_tiny(easy, out, resume=True, epochs=3)
    train_tiny(easy, out, resume=True)
    assert weights(out) == weights(finished)


@pytest.mark.parametrize("where", ["open_run_data", "train"])
def test_a_run_that_came_to_nothing_does_not_stand_in_the_way_of_another(
    easy: Path, tmp_path: Path, where: str
) -> None:
    with killed_in(where):
        train_tiny(easy, tmp_path, epochs=9)
    assert is_finished(train_tiny(easy, tmp_path, epochs=1))
    assert read_settings(tmp_path) == tiny_settings(easy, epochs=1)


@pytest.mark.parametrize("name", ["notes.txt", "run.json", "log.jsonl", "checkpoints/checkpoint-0001.safetensors"])
def test_what_may_not_be_a_run_that_came_to_nothing_is_left_alone(easy: Path, tmp_path: Path, name: str) -> None:
    with killed_in("train"):
        train_tiny(easy, tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('{"epoch": 1}\n')  # to an arrn, no more than an epoch's entry in a log
    with pytest.raises(ArrnError, match="is not empty; --resume continues"):
        train_tiny(easy, tmp_path)
    assert (tmp_path / name).read_text() == '{"epoch": 1}\n'


def test_bad_input_in_the_first_step_leaves_no_folder_behind(tmp_path: Path) -> None:
    data, out = write_mixed_folder(tmp_path / "data", [(8, 8)], 1), tmp_path / "run"
    settings = RunSettings(str(data), "resnet18_small_stem", {"width": 2}, Recipe(epochs=1, batch_size=1))
    with pytest.raises(ArrnError, match="is too few for this network's batch norms"):
        run_training(settings, out, Machine("cpu"))
    assert not out.exists()


def test_resume_of_a_finished_run_changes_nothing(easy: Path, finished: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in finished.rglob("*")}
    assert said_by(tiny_settings(easy), finished, resume=True) == [f"the run in {finished} is finished"]
    assert {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in finished.rglob("*")} == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 3}, "seed was 0 and is now 3"),
        ({"recipe": Recipe(epochs=7, batch_size=4)}, "epochs was 2 and is now 7"),
        ({"options": TINY_RUN | {"depth": 2}}, "arrn's depth was 1 and is now 2"),
        ({"holdout": 3, "skip_bad": True}, "holdout was 0 and is now 3; skip_bad was False and is now True"),
        ({"model": "arrn_small"}, "model was 'arrn' and is now 'arrn_small'"),
    ],
)
def test_going_on_otherwise_is_refused_with_the_difference(
    easy: Path, finished: Path, change: dict[str, object], message: str
) -> None:
    with pytest.raises(ArrnError, match=f"was started with other settings: .*{message}"):
        run_training(dataclasses.replace(tiny_settings(easy), **change), finished, resume=True)  # type: ignore[arg-type]


def test_where_the_data_lie_may_change(easy: Path, finished: Path) -> None:
    moved = dataclasses.replace(tiny_settings(easy), data=str(easy))
    assert "is finished" in said_by(moved, finished, resume=True)[0]


def test_the_held_out_samples_are_not_trained_on_and_their_accuracy_is_logged(tmp_path: Path) -> None:
    data = write_easy_set(tmp_path / "data", train=30)
    settings = dataclasses.replace(tiny_settings(data), holdout=9)
    parts = open_run_data(settings)
    assert parts.validation is not None
    train, validation = (
        {part.source.read(n).numpy().tobytes() for n in range(len(part.source))}
        for part in (parts.train, parts.validation)
    )
    assert (len(train), len(validation), len(train & validation)) == (21, 9, 0)
    run_training(settings, tmp_path / "run", Machine("cpu"))
    assert all(0 <= entry["validation_accuracy"] <= 1 for entry in timeless_log(tmp_path / "run"))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["samples"] == 21
    again = open_split(settings, "validation")  # evaluation holds out the same ones
    assert {again.source.read(n).numpy().tobytes() for n in range(9)} == validation


def test_validation_goes_by_the_policy_of_the_recipe(
    easy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Setting] = []

    def noted(model: torch.nn.Module, batches: Batches, settings: list[Setting], *rest: Any) -> list[Answers]:
        asked.extend(settings)
        return evaluate(model, batches, settings, *rest)

    monkeypatch.setattr("arrn.runs.preparing.evaluate", noted)
    settings = dataclasses.replace(tiny_settings(easy, epochs=1, policy="cheap"), holdout=3)
    run_training(settings, tmp_path / "run", Machine("cpu"))
    assert asked == [Setting(None, True, "cheap")]


def test_validation_does_not_disturb_training(easy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = dataclasses.replace(tiny_settings(easy), holdout=3)
    run_training(settings, tmp_path / "with", Machine("cpu"))
    monkeypatch.setattr("arrn.runs.preparing._validation", lambda *_: None)
    run_training(settings, tmp_path / "without", Machine("cpu"))
    assert weights(tmp_path / "with") == weights(tmp_path / "without")


def test_a_loss_that_is_no_number_stops_the_run(easy: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"the loss became (nan|inf) in epoch \d+: a lower learning rate may help"):
        train_tiny(easy, tmp_path / "run", learning_rate=1e30, optimizer="sgd", epochs=20)


def test_a_full_disk_at_a_checkpoint_keeps_the_one_before_and_the_run_goes_on_later(
    easy: Path, tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def full_for_the_second(descriptor: int) -> None:
        if list(tmp_path.glob("run/checkpoints/.checkpoint-0002*")):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full_for_the_second)
        with pytest.raises(RunError, match=r"No space left on device; the latest checkpoint is checkpoint-0001"):
            train_tiny(easy, tmp_path / "run")
    train_tiny(easy, tmp_path / "run", resume=True)
    assert weights(tmp_path / "run") == weights(finished)


def test_a_full_disk_when_the_network_is_saved_is_a_failed_run(
    easy: Path, tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("arrn.model_folder.write_atomically", _raise_full)
        with pytest.raises(RunError, match=r"No space left on device; the last checkpoint is kept.*--resume"):
            train_tiny(easy, tmp_path / "run")
    assert not is_finished(tmp_path / "run")
    train_tiny(easy, tmp_path / "run", resume=True)
    assert weights(tmp_path / "run") == weights(finished)


def _raise_full(path: Path, content: bytes) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_bad_samples_stop_a_run_unless_they_are_to_be_skipped(tmp_path: Path) -> None:
    data = write_mixed_folder(tmp_path / "data", [(8, 8)], 4)
    bad = data / "train" / "green" / "001.png"
    bad.write_bytes(bad.read_bytes()[:80])
    (data / "train" / "red" / "000.png").write_bytes(b"")
    settings = tiny_settings(data, epochs=1)
    with pytest.raises(ArrnError, match=r"red/000\.png: it is empty"):
        run_training(settings, tmp_path / "run", Machine("cpu"))
    (data / "train" / "red" / "000.png").unlink()
    with pytest.raises(ArrnError, match=r"green/001\.png: cannot be decoded"):
        run_training(settings, tmp_path / "run", Machine("cpu"))
    said = said_by(dataclasses.replace(settings, skip_bad=True), tmp_path / "run")
    assert any(line.startswith(f"skipped 1 bad sample: {bad}: cannot be decoded") for line in said)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["skipped"] == 1
