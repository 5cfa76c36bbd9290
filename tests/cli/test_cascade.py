"""`arrn evaluate --cascade`, and predictions within a budget afterwards."""

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

import arrn
from commands import Command
from small_runs import TINY, write_easy_set

MODEL = ["--model", "arrn", *(word for name, value in TINY.items() for word in ("--option", f"{name}={value}"))]


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that held samples out."""
    from arrn.runs import Machine, RunSettings, run_training
    from arrn.training import Recipe

    root = write_easy_set(tmp_path_factory.mktemp("data") / "easy", train=30, test=12)
    out = tmp_path_factory.mktemp("runs") / "held-out"
    run_training(RunSettings(str(root), "arrn", TINY, Recipe(epochs=2, batch_size=4), holdout=12), out, Machine("cpu"))
    return out


def test_a_cascade_is_calibrated_drawn_and_used(arrn_command: Command, calibrated: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(calibrated, run)
    out = arrn_command("evaluate", run, "--cascade", "--device", "cpu").out
    assert "levels and thresholds: chosen on 12 held-out images of easy" in out
    document = json.loads((run / "evaluation-cascade.json").read_text())
    assert document["plain"]["total"] == document["facts"]["test"] == 12
    assert [level["grid"] for level in document["levels"]] == ["8", "4"]
    results = document["results"]
    assert results[0]["threshold"] == 0
    assert results[0]["visited"] == ["4"]
    assert results[0]["accuracy"] == document["levels"][-1]["accuracy"]
    assert results[0]["multiply_adds"] < document["plain"]["multiply_adds"]
    with Image.open(run / "evaluation-cascade.png") as picture:
        assert min(picture.size) > 300
    assert f"{results[0]['multiply_adds'] / 1e6:.2f}" in out
    stored = json.loads((run / "cascade.json").read_text())
    assert stored["format_version"] == 2
    assert stored["points"][0]["levels"] == [1]

    image = tmp_path / "a.png"
    Image.new("RGB", (8, 8), (200, 10, 10)).save(image)
    budget = results[0]["multiply_adds"] / 1e6
    low = arrn_command("predict", run, image, "--budget", 1.001 * budget, "--device", "cpu").out
    assert "level: the last grid on which the network ran" in low
    assert [cell.strip() for cell in low.splitlines()[3].split("│")][5] == "4"
    plain = arrn_command("predict", run, image, "--budget", 1e6, "--device", "cpu").out
    assert [cell.strip() for cell in plain.splitlines()[3].split("│")][5] == "8"
    err = arrn_command("predict", run, image, "--budget", 1e-9, "--device", "cpu", code=2).err
    assert "too small: the lowest level alone takes" in err
    assert (
        "either a budget or a threshold"
        in arrn_command("predict", run, image, "--budget", 1, "--threshold", 0.5, "--device", "cpu", code=2).err
    )


def test_a_calibration_is_of_the_weights_beside_it(
    arrn_command: Command, calibrated: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    shutil.copytree(calibrated, run)
    arrn_command("evaluate", run, "--cascade", "--device", "cpu")
    assert arrn.Predictor(run, device="cpu").cascade is not None
    (run / "cascade.json").write_text("{}")
    image = tmp_path / "a.png"
    Image.new("RGB", (8, 8)).save(image)
    arrn_command("predict", run, image, "--device", "cpu")
    assert "is ignored: " in caplog.text
    assert "cascade.json is not what it should be" in caplog.text
    arrn_command("evaluate", run, "--cascade", "--device", "cpu", "--policy", "cheap")
    err = arrn_command("predict", run, image, "--budget", 1, "--policy", "exact", "--device", "cpu", code=2).err
    assert "calibrated for the policy 'cheap'" in err
    model = arrn.load(run)
    next(model.parameters()).data.mul_(2)
    arrn.save(model, run)
    assert arrn.Predictor(run, device="cpu").cascade is None
    assert "was calibrated for other weights" in caplog.text


def test_what_no_cascade_can_be_made_of_is_told(
    arrn_command: Command, finished: Path, calibrated: Path, easy: Path, tmp_path: Path
) -> None:
    image = tmp_path / "a.png"
    Image.new("RGB", (8, 8)).save(image)
    err = arrn_command("evaluate", finished, "--cascade", "--device", "cpu", code=2).err
    assert "no validation split: train with --holdout N" in err
    assert not (finished / "cascade.json").exists()
    flags = ["--budget", 1, "--device", "cpu"]
    assert "needs a calibrated cascade" in arrn_command("predict", finished, image, *flags, code=2).err
    for flag in (["--resolutions", "8"], ["--no-adapt"]):
        assert "samples as they come" in arrn_command("evaluate", calibrated, "--cascade", *flag, code=2).err
    assert (
        "leave --split train out" in arrn_command("evaluate", calibrated, "--cascade", "--split", "train", code=2).err
    )
    fixed = ["--model", "resnet18_small_stem", "--option", "width=2", "--epochs", 1, "--holdout", 6, "--device", "cpu"]
    arrn_command("train", easy, *fixed, "--out", tmp_path / "fixed")
    err = arrn_command("evaluate", tmp_path / "fixed", "--cascade", "--device", "cpu", code=2).err
    assert "a cascade needs a network with several levels" in err
