"""`arrn.train`: the run of the command, as a call; what it returns, shows and refuses."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import arrn
from arrn.errors import RunError
from arrn.runs import Machine, read_settings
from arrn.runs.train_in_python import in_python
from arrn.training import Recipe
from commands import Command
from pictures import write_folder
from small_runs import TINY, TINY_RUN, coloured, interrupted_after, weights

QUICK: dict[str, Any] = {"model": "arrn", "options": TINY_RUN, "epochs": 2, "batch_size": 4, "device": "cpu"}


@pytest.fixture
def arrn_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(capsys, monkeypatch)


def test_it_trains_what_the_command_trains(
    easy: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, report = arrn.train(easy, **QUICK, out=tmp_path / "run")
    assert weights(tmp_path / "run") == weights(finished)
    assert not model.training
    assert model.metadata.class_names == ("red", "green", "blue")
    assert [entry["epoch"] for entry in report.epochs] == [1, 2]
    assert report.evaluation is None
    assert report.folder == tmp_path / "run"
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "18 images of 3 classes: red, green, blue"
    assert lines[-1].startswith("epoch 2/2  loss ")
    found = report.evaluate([8], device="cpu")
    assert (found.facts["split"], found.results[0]["total"]) == ("test", 9)


def test_without_a_model_it_takes_the_advice_as_the_command_does(tmp_path: Path, arrn_command: Command) -> None:
    write_folder(tmp_path / "set", {"cat": [(16, 16)] * 20, "dog": [(12, 20)] * 20})
    arrn_command("train", tmp_path / "set", "--epochs", 1, "--out", tmp_path / "told", "--device", "cpu")
    report = arrn.train(tmp_path / "set", epochs=1, out=tmp_path / "called", device="cpu").report
    assert report.settings == read_settings(tmp_path / "told")
    assert weights(tmp_path / "called") == weights(tmp_path / "told")


def test_samples_that_were_held_out_are_evaluated_at_many_resolutions(easy: Path, tmp_path: Path) -> None:
    report = arrn.train(easy, **QUICK, holdout=6, dropout=0.5, out=tmp_path / "run", progress=False).report
    assert report.settings.options["dropout"] == 0.5
    assert report.evaluation is not None
    assert report.evaluation.facts["split"] == "validation"
    assert {8, 4} <= set(report.accuracies)
    assert f"             8: {report.accuracies[8]:.1%}" in str(report)
    assert f">{report.accuracies[8]:.1%}</td>" in report._repr_html_()
    again = arrn.train(resume=True, out=tmp_path / "run", evaluate=False, progress=False).report
    assert again.evaluation is None
    assert [entry["loss"] for entry in again.epochs] == [entry["loss"] for entry in report.epochs]


def test_an_interrupted_run_goes_on_by_the_same_call(easy: Path, finished: Path, tmp_path: Path) -> None:
    with (
        interrupted_after(3, signal.SIGINT),
        pytest.raises(RunError, match="is written: go on with resume=True, or end"),
    ):
        arrn.train(easy, **QUICK, out=tmp_path / "run", progress=False)
    with pytest.raises(arrn.ArrnError, match="resume=True continues the run that is in it, another out"):
        arrn.train(easy, **QUICK, out=tmp_path / "run")
    arrn.train(easy, **QUICK, out=tmp_path / "run", resume=True)
    assert weights(tmp_path / "run") == weights(finished)


def test_arrays_are_trained_on_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.arange(12) % 3
    images = np.stack([coloured(8, 8, label, n) for n, label in enumerate(labels.tolist())])
    with pytest.raises(arrn.ArrnError, match=r"numpy\.savez\('images\.npz', train_images=IMAGES, train_labels=LABELS"):
        arrn.train(images)  # type: ignore[arg-type]
    monkeypatch.chdir(tmp_path)
    np.savez("images.npz", train_images=images, train_labels=labels)
    model, report = arrn.train("images.npz", **QUICK, progress=False)
    assert model(torch.zeros(1, 3, 8, 8)).shape == (1, 3)
    assert report.folder == Path("runs/images.npz-arrn-seed0")


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ({"flip": False}, (2, False, 1e-3)),
        (Recipe(epochs=9, learning_rate=0.5), (2, True, 0.5)),
        ("few_volumes", (2, True, 3e-3)),
    ],
)
def test_recipes_are_options_or_whole_or_names(
    easy: Path, tmp_path: Path, recipe: Any, expected: tuple[int, bool, float]
) -> None:
    found = arrn.train(easy, **QUICK, recipe=recipe, out=tmp_path / "run", progress=False).report.settings.recipe
    assert (found.epochs, found.flip, found.learning_rate) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": torch.nn.Identity()}, "the model should be a name, .* got a Identity; for a network of your own"),
        ({"holdout": 0.2}, "the number of samples to hold out must be a whole number, got 0.2"),
        ({"seed": True}, "the seed must be a whole number, got True"),
        ({"keep": "best"}, "samples must be held out: holdout=N, or a validation split"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"machine": Machine("mps")}, "there is no mps device here; device='auto' takes an available device"),
        ({"aspect": "zoom"}, "zoom"),
        ({"recipe": {"epoch": 3}}, "did you mean 'epochs'"),
        ({"imports": "mine"}, r"imports takes a list of modules, such as \['package.module'\], got 'mine'"),
    ],
)
def test_refusals_name_arguments(easy: Path, tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(arrn.ArrnError, match=message):
        arrn.train(easy, **({"model": "arrn", "options": TINY, "out": tmp_path / "run"} | arguments))
    assert not (tmp_path / "run").exists()


def test_a_data_set_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(arrn.ArrnError, match=r"a run continues without it: arrn\.train\(resume=True, out=DIR\)$"):
        arrn.train(out=tmp_path)


def test_bad_samples_name_the_argument_that_leaves_them_out(tmp_path: Path) -> None:
    write_folder(tmp_path / "set", {"cat": [(8, 8)] * 6, "dog": [(8, 8)] * 6})
    (tmp_path / "set" / "cat" / "0.png").write_bytes(b"no picture")
    with pytest.raises(arrn.ArrnError, match="; skip_bad=True leaves out samples that cannot be read"):
        arrn.train(tmp_path / "set", **QUICK, out=tmp_path / "run", progress=False)
    arrn.train(tmp_path / "set", **QUICK, out=tmp_path / "run", skip_bad=True, progress=False)
    assert "0.png" in (tmp_path / "run" / "skipped.txt").read_text()


def test_messages_without_flags_stay() -> None:
    for text in ("a -- b", "an epoch takes 3 s", "levels 32 -> 16"):
        assert in_python(text) == text
