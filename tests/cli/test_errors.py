"""Bad input: exit code 2 and one line that says what was wrong, never a traceback."""

import json
import shutil
from pathlib import Path

import pytest

from commands import Command
from small_runs import TINY

MODEL = ["--model", "arrn", *(word for name, value in TINY.items() for word in ("--option", f"{name}={value}"))]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["train"], "name the data set to train on, such as sample, or give the path of a folder"),
        (["evaluate"], "Missing argument"),
        (["train", "sample", "--nonsense"], "No such option"),
        (["train", "sample", "--epochs", "many"], "--epochs"),
        (["train", "sampel"], "unknown data set 'sampel'; did you mean 'sample'?"),
        (["train", "./nowhere"], "nowhere is missing"),
        (["train", "sample", "--data", "./nowhere"], "nowhere is missing"),
        (["train", "sample", "--model", "resnet"], "unknown model 'resnet'; did you mean 'resnet"),
        (["train", "sample", "--set", "epoch=1"], "unknown option of a recipe: 'epoch'; did you mean 'epochs'?"),
        (["train", "sample", "--set", "epochs"], "--set takes name=value, got 'epochs'"),
        (["train", "sample", "--set", "=1"], "--set takes name=value, got '=1'"),
        (["train", "sample", "--set", "epochs=some"], "epochs must be a whole number from 1 to 1000000, got 'some'"),
        (["train", "sample", "--set", "epochs=2020-01-01"], "epochs must be a whole number"),
        (["train", "sample", "--epochs", "0"], "epochs must be a whole number from 1 to 1000000, got 0"),
        (["train", "sample", "--batch-size", "-2"], "batch_size must be a whole number"),
        (["train", "sample", "--learning-rate", "nan"], "learning_rate must be a number above 0, got nan"),
        (["train", "sample", "--option", "depht=1"], "unknown option of model 'arrn_small': 'depht'"),
        (["train", "sample", "--option", "name=x"], "unknown option of model 'arrn_small': 'name'"),
        (["train", "sample", "--option", "dropout=often"], "dropout"),
        (["train", "sample", "--option", "dropout=nan"], "dropout"),
        (["train", "sample", "--option", "kernel=2020-01-01"], "kernel"),
        (["train", "sample", "--option", "block=[" + "[" * 2000], "block"),
        (["train", "sample", "--option", "num_classes=3"], "num_classes is 3, but the data set has 10 classes"),
        (["train", "sample", "--option", "in_channels=1"], "in_channels is 1, but images have 3 channels"),
        (["train", "sample", "--model", "arrn", "--option", "ndim=1"], "ndim is 1, but images have 2 axes"),
        (["train", "sample", "--model", "arrn", "--option", "sizes=[4,8]"], "ladder"),
        (["train", "sample", "--model", "arrn", "--option", "sizes=big"], "size"),
        (["train", "sample", "--model", "resnet18", "--option", "size=big"], "size"),
        (["train", "sample", "--model", "resnet18_small_stem", "--option", "width=wide"], "width"),
        (["train", "sample", "--resolutions", "32;16"], "--resolutions takes whole numbers of at least 1"),
        (["train", "sample", "--resolutions", "32,0"], "--resolutions takes whole numbers of at least 1"),
        (["train", "sample", "--seed", "-1"], "seed must be a whole number from 0 to 2**63 - 1, got -1"),
        (["train", "sample", "--holdout", "5000"], "5000 samples cannot be held out"),
        (["train", "sample", "--holdout", "-1"], "must be at least 0, got -1"),
        (["train", "sample", "--workers", "-1"], "workers must be from 0 to 1000, got -1"),
        (["train", "sample", "--checkpoint-every", "0"], "epochs between checkpoints must be a number above 0"),
        (["train", "sample", "--device", "gpu"], "unknown device 'gpu'"),
        (["train", "sample", "--recipe", "nowhere.toml"], "cannot read the recipe nowhere.toml"),
        (["evaluate", "nowhere"], "nowhere is not a directory"),
        (["predict", "nowhere", "x.png"], "nowhere is not a directory"),
    ],
)
def test_it_is_one_line_that_says_what_is_wrong(
    arrn_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    # The looks at every sample are not what this is about.
    assert message in arrn_command(*arguments, code=2).err


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_that_is_not_there(
    arrn_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    for command in (["train", "sample", "--out", tmp_path / "run"], ["evaluate", tmp_path], ["predict", tmp_path, "x"]):
        assert f"there is no {device} device here" in arrn_command(*command, "--device", device, code=2).err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resolutions", "8,x"], "--resolutions takes whole numbers"),
        (["--policy", "fast"], "unknown policy 'fast'"),
        (["--split", "all"], "unknown split 'all'"),
        (["--split", "validation"], "this run held out no samples"),
        (["--resampler", "nearest", "--resolutions", "4"], "unknown resampler 'nearest'"),
        (["--dataset", "sampel"], "unknown data set 'sampel'"),
        (["--dataset", "sample"], "are not those that the network was trained on"),
        (["--data", "./nowhere"], "nowhere is missing"),
        (["--plot", "x.jpg"], "--plot takes a file ending in .png or .svg, got 'x.jpg'"),
        (["--batch-size", "0"], "--batch-size"),
        (["--json", "/proc/nowhere/x.json", "--resolutions", "4"], "cannot write /proc/nowhere/x.json"),
        (["--plot", "/proc/nowhere/x.png", "--resolutions", "4"], "cannot write /proc/nowhere/x.png"),
    ],
)
def test_evaluation_of_what_cannot_be(
    arrn_command: Command, finished: Path, arguments: list[str], message: str
) -> None:
    assert message in arrn_command("evaluate", finished, *arguments, "--device", "cpu", code=2).err


def test_images_that_are_none(arrn_command: Command, finished: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.png"
    text.write_text("no image")
    assert f"{text}: not an image" in arrn_command("predict", finished, text, "--device", "cpu", code=2).err
    assert "gone.png: no such file" in arrn_command("predict", finished, tmp_path / "gone.png", code=2).err
    assert "unknown policy" in arrn_command("predict", finished, text, "--policy", "fast", code=2).err


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"format": "arrn run"}', '{"format": "arrn", "format_version": 1}']
)
@pytest.mark.parametrize("name", ["run.json", "config.json"])
def test_files_of_a_run_that_are_not_what_they_were(
    arrn_command: Command, finished: Path, easy: Path, tmp_path: Path, name: str, content: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / name).write_text(content)
    assert name in arrn_command("evaluate", run, "--resolutions", "8", "--device", "cpu", code=2).err
    if name == "run.json":
        assert name in arrn_command("train", easy, *MODEL, "--out", run, "--resume", code=2).err


def test_checkpoints_that_are_all_damaged(arrn_command: Command, finished: Path, easy: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / "config.json").unlink()
    for path in (run / "checkpoints").iterdir():
        path.write_bytes(b"damaged")
    assert "remove them to start afresh" in arrn_command("train", easy, "--out", run, "--resume", code=2).err
    assert "is not finished" in arrn_command("evaluate", run, code=2).err


def test_an_out_that_is_a_file(arrn_command: Command, easy: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot use" in arrn_command("train", easy, *MODEL, "--out", tmp_path / "file", code=2).err
    assert "cannot use" in arrn_command("train", easy, *MODEL, "--out", tmp_path / "file" / "below", code=2).err


def test_options_of_another_run_are_compared_by_value(arrn_command: Command, finished: Path, easy: Path) -> None:
    same = arrn_command("train", easy, *MODEL, "--out", finished, "--resume")
    assert "is finished" in same.out
    other = arrn_command("train", easy, *MODEL, "--option", "depth=2", "--out", finished, "--resume", code=2)
    assert "arrn's depth was 1 and is now 2" in other.err
    assert json.loads((finished / "run.json").read_text())["settings"]["options"]["depth"] == 1
