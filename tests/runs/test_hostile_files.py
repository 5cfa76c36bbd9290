"""The files of a run as a stranger may have left them: an error in one line, never a traceback; and what diverged."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from arrn.cli import main
from arrn.errors import ArrnError, RunError
from arrn.experiments.jobs import read_job
from arrn.runs import is_finished, read_settings
from arrn.training import Checkpoint, Checkpoints, read_log
from small_runs import tiny_settings, train_tiny

DEEP = "[" * 100_000


def within(path: Path, *names: str | int, value: Any) -> None:
    """Puts a value into a JSON file, at a place in it."""
    document = json.loads(path.read_text())
    place = document
    for name in names[:-1]:
        place = place[name]
    place[names[-1]] = value
    path.write_text(json.dumps(document))


def as_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**32)


# What is done to a run, and the word of the error; None where the run is as good as before.
DAMAGE: dict[str, tuple[Callable[[Path], None], str | None]] = {
    "run.json is a FIFO": (lambda run: as_fifo(run / "run.json"), "it is a FIFO"),
    "run.json is a folder": (lambda run: as_folder(run / "run.json"), "it is a folder"),
    "run.json is large": (lambda run: as_large(run / "run.json"), "4,294,967,296 bytes"),
    "run.json is nested": (lambda run: (run / "run.json").write_text(DEEP), "nested more than 64"),
    "a number": (lambda run: (run / "run.json").write_text("3"), "run.json"),
    "no settings": (lambda run: within(run / "run.json", "settings", value=[]), "settings should have"),
    "seed": (lambda run: within(run / "run.json", "settings", "seed", value=10**28), "94 bits"),
    "negative seed": (lambda run: within(run / "run.json", "settings", "seed", value=-(2**62)), "seed must be"),
    "epochs": (lambda run: within(run / "run.json", "settings", "recipe", "epochs", value=2**62), "epochs must be"),
    "batch size": (lambda run: within(run / "run.json", "settings", "recipe", "batch_size", value=1e9), "batch_size"),
    "data set": (lambda run: within(run / "run.json", "settings", "dataset", value="a\0b"), "dataset is not a path"),
    "far away": (lambda run: within(run / "run.json", "settings", "dataset", value="x" * 5000), "x"),
    "window": (lambda run: within(run / "run.json", "settings", "window", value=float("nan")), "window"),
    "holdout": (lambda run: within(run / "run.json", "settings", "holdout", value=-1), "hold out"),
    "splits": (lambda run: within(run / "run.json", "splits", value=3), "splits should be a list"),
    "trained on": (lambda run: within(run / "run.json", "trained_on", value=[1]), None),
    "provenance": (lambda run: within(run / "run.json", "provenance", value="x"), "provenance should be"),
    "weights are a FIFO": (lambda run: as_fifo(run / "model.safetensors"), "it is a FIFO"),
    "config is nested": (lambda run: (run / "config.json").write_text(DEEP), "nested more than 64"),
    "window of the network": (lambda run: within(run / "config.json", "inputs", "window", value=1e300), "window"),
    "resampler": (lambda run: within(run / "config.json", "inputs", "resampler", value=[1]), "resampler"),
    "odd resampler": (lambda run: within(run / "config.json", "inputs", "resampler", value="magic"), "magic"),
    "nothing else of it is read": (lambda run: as_fifo(run / "log.jsonl"), None),
    "nor the recipe": (lambda run: as_fifo(run / "recipe.toml"), None),
}


def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> tuple[int, str]:
    """The exit code and the error of a command; anything but an exit fails the test."""
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["arrn", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    error = capsys.readouterr().err
    assert error.count("\n") <= 1
    return int(ended.value.code or 0), error


@pytest.mark.parametrize(("damage", "word"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_strangers_run_is_evaluated_or_refused_in_one_line(
    damage: Callable[[Path], None],
    word: str | None,
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    damage(run)
    code, error = said(capsys, monkeypatch, "evaluate", run, "--resolutions", "8", "--device", "cpu", "--in-memory")
    if word is None:
        assert code == 0, error
    else:
        assert code == 2
        assert word in error


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda run: as_fifo(run / "log.jsonl"), "it is a FIFO"),
        (lambda run: as_fifo(run / "run.json"), "it is a FIFO"),
        (lambda run: (run / "log.jsonl").write_text(DEEP + "\n"), None),
        (lambda run: (run / "log.jsonl").write_text('{"epoch": 1, "seconds": "long", "accuracy": []}\n'), None),
        (lambda run: within(run / "run.json", "trained_on", value=[1]), "trained_on should have"),
        (lambda run: within(run / "run.json", "trained_on", "class_names", value=["a", "a"]), "trained_on should have"),
        (lambda run: within(run / "run.json", "settings", "options", "features", value=[40001, 8]), "a network of at"),
    ],
)
def test_a_strangers_run_is_resumed_or_refused_in_one_line(
    damage: Callable[[Path], None],
    word: str | None,
    finished: Path,
    easy: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / "config.json").unlink()
    damage(run)
    code, error = said(capsys, monkeypatch, "train", easy, "--out", run, "--resume", "--device", "cpu", "--in-memory")
    assert (code == 0) == (word is None)
    assert word is None or word in error


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tensors": {"optimizer.999999999999.exp_avg": torch.zeros(1)}}, "there is no parameter 999999999999"),
        ({"tensors": {"optimizer.-1.exp_avg": torch.zeros(1)}}, "there is no parameter -1"),
        ({"tensors": {"optimizer.0.magic": torch.zeros(1)}}, "not belong to this optimiser, which keeps step, exp_avg"),
        ({"tensors": {"optimizer.0.exp_avg": torch.zeros(())}}, r"exp_avg has shape \(\), expected \(\d"),
        ({"tensors": {"optimizer.0.step": torch.zeros(4)}}, r"has shape \(4,\), expected \(\)"),
        ({"only": ("model.", "optimizer.0.step")}, "the state of the optimiser is incomplete"),
        ({"facts": {"totals": [float("inf"), 1, 2]}}, "does not tell how far its epoch was"),
        ({"facts": {"totals": [1e308, 1, 2]}}, "does not tell how far its epoch was"),
        ({"facts": {"totals": [1.0, -1, 2]}}, "does not tell how far its epoch was"),
        ({"epoch": 7}, "does not belong to a run of 2 epochs of 5 steps: it is after epoch 7, step 0"),
        ({"step": 6}, "does not belong to a run of 2 epochs of 5 steps: it is after epoch 1, step 6"),
    ],
)
def test_a_checkpoint_that_is_whole_but_wrong_is_refused(
    change: dict[str, Any], message: str, finished: Path, easy: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / "config.json").unlink()
    good = Checkpoints(run / "checkpoints").read_latest()
    assert good is not None
    shutil.rmtree(run / "checkpoints")
    tensors = {name: t for name, t in good.tensors.items() if name.startswith(change.get("only", ("",)))}
    facts = dict(good.facts) | change.get("facts", {})
    wrong = Checkpoint(change.get("epoch", 1), change.get("step", 0), tensors | change.get("tensors", {}), facts)
    Checkpoints(run / "checkpoints").write(wrong)
    with pytest.raises(ArrnError, match=message):
        train_tiny(easy, run, resume=True)


def test_what_is_no_regular_file_is_no_checkpoint(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "checkpoint-0001.safetensors")
    (tmp_path / "checkpoint-0002.safetensors").mkdir()
    assert Checkpoints(tmp_path).read_latest() is None


def test_a_log_ends_where_a_line_is_no_entry(tmp_path: Path) -> None:
    path, good = tmp_path / "log.jsonl", '{"epoch": 1, "loss": 0.5, "accuracy": 0.5, "seconds": 1.0}\n'
    for line in (DEEP, '{"epoch": 0}', '{"epoch": true}', '{"epoch": 2, "seconds": NaN}', "x" * 10**6, "\xff", "{}"):
        path.write_text(f"{good}{line}\n{good}")
        assert len(read_log(path)) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"settings": {}},
        {"machine": {"workers": 10**9}},
        {"out": 3},
        {"experiments": "all"},
        {"more": 1},
        {"name": None},
    ],
)
def test_a_job_that_is_none_is_named(tmp_path: Path, change: dict[str, Any]) -> None:
    job = {
        "name": "x",
        "settings": {},
        "out": ".",
        "results": ".",
        "experiments": [],
        "split": "test",
        "machine": {"device": "cpu", "stream": None, "workers": 0, "checkpoint_every": None},
        "command": "",
    }
    path = tmp_path / "x.job.json"
    path.write_text(json.dumps({"format": "arrn-job", "format_version": 1, "job": job | change}))
    with pytest.raises(ArrnError, match=r"x\.job\.json does not describe a job: "):
        read_job(path)


def test_a_last_step_that_diverges_is_a_failed_run(easy: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"the weights are no longer finite in epoch 1 \(.*\): a lower learning rate"):
        train_tiny(easy, tmp_path / "run", epochs=1, batch_size=18, learning_rate=1e308)
    assert not is_finished(tmp_path / "run")
    assert Checkpoints(tmp_path / "run" / "checkpoints").read_latest() is None
    assert read_settings(tmp_path / "run") == tiny_settings(easy, epochs=1, batch_size=18, learning_rate=1e308)


def test_the_checkpoint_before_a_run_diverged_is_kept(easy: Path, tmp_path: Path) -> None:
    recipe = {"epochs": 6, "batch_size": 18, "learning_rate": 1e-3, "final_learning_rate": 1e300}
    with pytest.raises(RunError, match=r"the weights are no longer finite|the loss became"):
        train_tiny(easy, tmp_path, checkpoint_every=1.0, **recipe)
    kept = Checkpoints(tmp_path / "checkpoints").read_latest()
    assert kept is not None
    assert all(tensor.isfinite().all() for tensor in kept.tensors.values())


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_weights_that_diverged_are_neither_asked_nor_judged(
    command: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    tensors = safetensors.torch.load_file(run / "model.safetensors")
    tensors["head.classifier.bias"][1] = torch.nan
    safetensors.torch.save_file(tensors, run / "model.safetensors")
    within(run / "config.json", "weights_sha256", value=None)
    what = [tmp_path / "x.png"] if command == "predict" else ["--resolutions", "8"]
    code, error = said(capsys, monkeypatch, command, run, *what, "--device", "cpu")
    assert code == 2
    assert "head.classifier.bias holds NaN or infinity" in error
