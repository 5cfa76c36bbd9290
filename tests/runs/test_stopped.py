"""What a stopped run has so far: evaluated as it is, finished early; and the best epoch, kept through any crash."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import arrn
from arrn.errors import ArrnError, RunError
from arrn.runs import Machine, RunSettings, evaluate_run, finish_run, read_stopped, run_training
from arrn.runs.run_folder import is_finished, locked
from arrn.runs.settings import read_run_file
from arrn.training import BestEpoch, Checkpoints, TrainingStep, read_log
from commands import QUIET
from small_runs import said_by, tiny_settings, weights


class Died(BaseException):
    """As if the process had been killed."""


def stop_after(
    steps: int, monkeypatch: pytest.MonkeyPatch, settings: RunSettings, out: Path, every: float = 1.0
) -> Path:
    """A run that dies after so many steps of its own."""
    whole, taken = TrainingStep.__call__, 0

    def counted(self: TrainingStep, batch: Any, number: int) -> None:
        nonlocal taken
        if self.team.size == 1 and taken == steps:
            raise Died
        whole(self, batch, number)
        taken += 1

    with monkeypatch.context() as patched:
        patched.setattr(TrainingStep, "__call__", counted)
        with pytest.raises(Died):
            run_training(settings, out, Machine("cpu", checkpoint_every=every), resume=out.exists())
    return out


@pytest.fixture
def stopped(easy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four epochs of five steps that died in the third."""
    return stop_after(13, monkeypatch, tiny_settings(easy, epochs=4), tmp_path / "stopped")


def test_a_stopped_run_is_evaluated_as_it_is(stopped: Path) -> None:
    report = evaluate_run(stopped, [8], device="cpu", checkpoint=True)
    assert report.facts["remarks"] == ["the weights are those of checkpoint-0002.safetensors, after 2 of 4 epochs"]
    checkpoint = Checkpoints(stopped / "checkpoints").read_latest()
    assert checkpoint is not None
    network = read_stopped(stopped).model
    for name, value in network.state_dict().items():
        assert torch.equal(value, checkpoint.tensors[f"model.{name}"])
    assert not is_finished(stopped)
    with pytest.raises(ArrnError, match=r"evaluate it as it is with --checkpoint, or end it with `arrn finish"):
        evaluate_run(stopped, [8], device="cpu")


def test_a_stopped_run_is_finished_early_and_marked(stopped: Path) -> None:
    expected = evaluate_run(stopped, [8, 4], device="cpu", checkpoint=True).results
    found = finish_run(stopped)
    assert str(found) == "checkpoint-0002.safetensors, after 2 of 4 epochs"
    mark = {"checkpoint": "checkpoint-0002.safetensors", "epoch": 2, "step": 0, "epochs": 4}
    assert read_run_file(stopped)["finished_early"] == mark
    network = arrn.load(stopped)
    assert network.metadata.class_names == ("red", "green", "blue")
    assert network.metadata.mean is not None
    report = evaluate_run(stopped, [8, 4], device="cpu")
    assert report.results == expected
    assert report.facts["remarks"] == [
        "the run was finished early, from checkpoint-0002.safetensors, after 2 of 4 epochs"
    ]
    settings = read_run_file(stopped)["settings"]
    said = said_by(tiny_settings(Path(settings["dataset"]), epochs=4), stopped, resume=True)
    assert said == [f"the run in {stopped} is finished, early, by arrn finish"]
    with pytest.raises(ArrnError, match=r"is finished: its network is in model\.safetensors"):
        finish_run(stopped)


def test_a_checkpoint_within_an_epoch_will_do(easy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = stop_after(7, monkeypatch, tiny_settings(easy, epochs=4), tmp_path / "run", every=0.4)
    assert str(read_stopped(out)) == "checkpoint-0001-000001.safetensors, after 1 of 4 epochs and 1 step"


def test_averaged_weights_are_what_counts(easy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tiny_settings(easy, epochs=3, weight_averaging=0.9)
    run_training(dataclasses.replace(settings), tmp_path / "whole", Machine("cpu", checkpoint_every=1.0))
    # The last checkpoint is there, the network is not: killed in between.
    out = stop_after(15, monkeypatch, tiny_settings(easy, epochs=4, weight_averaging=0.9), tmp_path / "run")
    finish_run(out)
    checkpoint = Checkpoints(out / "checkpoints").read_latest()
    assert checkpoint is not None
    for name, value in arrn.load(out).state_dict().items():
        assert torch.equal(value, checkpoint.tensors[f"average.{name}"])
    finished = Checkpoints(tmp_path / "whole" / "checkpoints").read_latest()
    assert finished is not None
    for name, value in arrn.load(tmp_path / "whole").state_dict().items():
        assert torch.equal(value, finished.tensors[f"average.{name}"])


def test_what_is_no_stopped_run_is_refused(
    easy: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    early = stop_after(2, monkeypatch, tiny_settings(easy), tmp_path / "early")
    for folder, message in (
        (tmp_path / "empty", "holds no run"),
        (tmp_path / "nowhere", "holds no run"),
        (finished, "is finished: its network is in model.safetensors, not in a checkpoint"),
        (early, "has no checkpoint yet: go on with"),
    ):
        for use in (read_stopped, finish_run):
            with pytest.raises(ArrnError, match=message):
                use(folder)
    assert not (tmp_path / "nowhere").exists()


def test_a_run_at_work_is_not_finished_but_can_be_evaluated(stopped: Path) -> None:
    with locked(stopped / ".lock"):
        with pytest.raises(RunError, match="another process is at work on this run"):
            finish_run(stopped)
        assert evaluate_run(stopped, [8], device="cpu", checkpoint=True).results
    assert not is_finished(stopped)


def test_a_run_of_before_says_what_to_do(stopped: Path) -> None:
    document = json.loads((stopped / "run.json").read_text())
    del document["network"]
    (stopped / "run.json").write_text(json.dumps(document))
    with pytest.raises(
        ArrnError, match="does not describe the network, since an earlier version of arrn began the run: go on"
    ):
        finish_run(stopped)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda network: network["model"]["options"].update(features=[4, 16]), "does not fit"),
        (lambda network: network["model"].update(name="nothing"), "unknown model 'nothing'"),
        (lambda network: network["model"]["options"].update(features=[4000, 8000]), "it describes a network of at"),
        (lambda network: network.clear(), "does not describe a model"),
        (lambda network: network["inputs"].update(mean="x"), "mean must be a list of numbers"),
    ],
)
def test_what_a_stranger_wrote_of_the_network_is_checked(
    stopped: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    document = json.loads((stopped / "run.json").read_text())
    change(document["network"])
    (stopped / "run.json").write_text(json.dumps(document))
    with pytest.raises(ArrnError, match=message) as raised:
        finish_run(stopped)
    assert "/tmp" not in str(raised.value).replace(str(stopped), "")
    assert not is_finished(stopped)


def test_killed_while_finishing_it_is_stopped_or_finished(stopped: Path) -> None:
    """The mark is written first; a run that goes on after all drops it."""
    code = """
import os, sys
from pathlib import Path
import arrn.runs.stopped as stopped
stopped.save = lambda *given: os._exit(9)
stopped.finish_run(Path(sys.argv[1]))
"""
    killed = subprocess.run([sys.executable, "-c", code, str(stopped)], env=os.environ | QUIET, check=False)
    assert killed.returncode == 9
    assert "finished_early" in read_run_file(stopped)
    settings = tiny_settings(Path(read_run_file(stopped)["settings"]["dataset"]), epochs=4)
    run_training(settings, stopped, Machine("cpu"), resume=True)
    assert is_finished(stopped)
    assert "finished_early" not in read_run_file(stopped)


SCORES = {1: 0.5, 2: 0.8, 3: 0.6, 4: 0.8, 5: 0.7, 6: 0.1}


def keeping(easy: Path) -> RunSettings:
    return dataclasses.replace(tiny_settings(easy, epochs=6), holdout=3, keep="best")


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation finds what `SCORES` says; the network still decides nothing at random."""
    told = iter(())

    def validate_by_epoch(*given: Any, **options: Any) -> Any:
        prepared = whole(*given, **options)
        return dataclasses.replace(prepared, validate=lambda model: {"validation_accuracy": SCORES[epoch_of(prepared)]})

    def epoch_of(prepared: Any) -> int:
        nonlocal told
        done = int(next(iter(prepared.step.optimizer.state.values()))["step"])
        return done // len(prepared.batches)

    from arrn.runs import preparing, training

    whole = preparing.prepare
    monkeypatch.setattr(training, "prepare", validate_by_epoch)


def test_the_best_epochs_weights_are_saved(easy: Path, tmp_path: Path, scored: None) -> None:
    said = said_by(keeping(easy), tmp_path / "best")
    assert said[-1] == "kept the weights of epoch 4 of 6, the best: validation accuracy 80.0%"
    kept = read_run_file(tmp_path / "best")["kept_epoch"]
    assert kept == {"epoch": 4, "metric": "validation_accuracy", "score": 0.8}
    shorter = dataclasses.replace(keeping(easy), keep="last")
    run_training(shorter, tmp_path / "last", Machine("cpu"))
    assert weights(tmp_path / "best") != weights(tmp_path / "last")
    remarks = evaluate_run(tmp_path / "best", [8], device="cpu", split="validation").facts["remarks"]
    assert remarks == ["the weights are those of epoch 4, the best on the validation samples"]
    assert [entry["validation_accuracy"] for entry in read_log(tmp_path / "best" / "log.jsonl")] == [*SCORES.values()]


@pytest.mark.parametrize("every", [1.0, 2.0])
@pytest.mark.parametrize("steps", [5, 12, 17, 22, 23])
def test_a_run_that_was_killed_anywhere_keeps_the_same_epoch(
    easy: Path, tmp_path: Path, scored: None, monkeypatch: pytest.MonkeyPatch, steps: int, every: float
) -> None:
    run_training(keeping(easy), tmp_path / "whole", Machine("cpu", checkpoint_every=every))
    out = stop_after(steps, monkeypatch, keeping(easy), tmp_path / "run", every=every)
    run_training(keeping(easy), out, Machine("cpu", checkpoint_every=every), resume=True)
    assert weights(out) == weights(tmp_path / "whole")
    assert read_run_file(out)["kept_epoch"]["epoch"] == 4


def test_a_stopped_run_that_keeps_the_best_is_finished_with_it(
    easy: Path, tmp_path: Path, scored: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = stop_after(14, monkeypatch, keeping(easy), tmp_path / "run")
    assert str(finish_run(out)) == "best-0002.safetensors, after 2 of 6 epochs"


def test_the_best_epoch_needs_samples_that_were_held_out(
    easy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arrn.runs.splits.examine", lambda *arguments, **_: pytest.fail("it reads the samples first"))
    with pytest.raises(ArrnError, match="to keep the best epoch, samples must be held out: --holdout N"):
        run_training(dataclasses.replace(keeping(easy), holdout=0), tmp_path / "run", Machine("cpu"))
    with pytest.raises(ArrnError, match="unknown epoch to keep 'bets'; did you mean 'best'"):
        dataclasses.replace(keeping(easy), keep="bets")


def offered(
    folder: Path, scores: Mapping[int, float], epoch: int = 0, metric: str = "validation_accuracy"
) -> BestEpoch:
    best = BestEpoch(folder, epoch)
    for number, score in scores.items():
        layer = nn.Linear(1, 1)
        nn.init.constant_(layer.weight, number)
        best.offer({"epoch": number, metric: score, "validation_accuracy": 0.0} | {metric: score}, layer)
    return best


def held(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_might_be_the_best_after_going_back_stays(tmp_path: Path) -> None:
    best = offered(tmp_path, {1: 0.5, 2: 0.6, 3: 0.4, 4: 0.7, 5: 0.8})
    assert len(held(tmp_path)) == 4
    best.prune([5, 3])
    assert held(tmp_path) == ["best-0002.safetensors", "best-0005.safetensors"]
    again = BestEpoch(tmp_path, 3)  # the run went back
    assert held(tmp_path) == ["best-0002.safetensors"]
    found = again.read()
    assert found is not None
    assert (found.epoch, found.facts["score"]) == (2, 0.6)


def test_balanced_accuracy_decides_where_there_is_one_and_of_equals_the_latest(tmp_path: Path) -> None:
    found = offered(tmp_path, {1: 0.5, 2: 0.7, 3: 0.7, 4: 0.6}, metric="validation_balanced_accuracy").read()
    assert found is not None
    assert (found.epoch, found.facts["metric"]) == (3, "validation_balanced_accuracy")


def test_a_damaged_best_epoch_is_reported_and_the_next_best_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    best = offered(tmp_path, {1: 0.5, 2: 0.7})
    (tmp_path / "best-0002.safetensors").write_bytes(b"cut off")
    found = best.read()
    assert found is not None
    assert found.epoch == 1
    assert "best-0002.safetensors" in caplog.text
    assert BestEpoch(tmp_path, 2).read() is not None
    assert held(tmp_path) == ["best-0001.safetensors"]
