"""`arrn train`."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import arrn
from arrn.errors import RunError
from arrn.runs import RunSettings, read_settings
from arrn.training import read_recipe
from commands import QUIET, Command
from small_runs import TINY_RUN, interrupted_after, timeless_log, weights, write_easy_set, write_mixed_folder

MODEL = ["--model", "arrn", *(word for name, value in TINY_RUN.items() for word in ("--option", f"{name}={value}"))]
QUICK = [*MODEL, "--epochs", "2", "--batch-size", "4", "--device", "cpu"]


def test_it_trains_what_the_library_trains(arrn_command: Command, easy: Path, tmp_path: Path, finished: Path) -> None:
    done = arrn_command("train", easy, *QUICK, "--out", tmp_path / "run")
    assert weights(tmp_path / "run") == weights(finished)
    what, *lines = done.out.splitlines()
    assert what == "18 images of 3 classes: red, green, blue"
    assert lines[0].startswith("epoch 1/2  loss ")
    assert "examples/s" in lines[0]
    assert "0:0" in lines[0]  # time left
    assert lines[-1] == f"trained network: {tmp_path / 'run'}  (next: arrn evaluate {tmp_path / 'run'})"
    assert done.err == ""


def test_flags_override_the_file_and_the_file_the_defaults(arrn_command: Command, easy: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('epochs = 7\nbatch_size = 9\noptimizer = "sgd"\nmomentum = 0.5\n')
    flags = ["--recipe", recipe, "--epochs", "1", "--set", "momentum=0.25", "--set", "flip=false", "--seed", "5"]
    flags += ["--learning-rate", "0.5", "--resolutions", "8,4", "--dropout", "0.5", "--holdout", "3"]
    arrn_command("train", easy, *MODEL, *flags, "--out", tmp_path / "run", "--device", "cpu")
    resolved = read_recipe(tmp_path / "run" / "recipe.toml")
    assert (resolved.epochs, resolved.batch_size, resolved.optimizer) == (1, 9, "sgd")
    assert (resolved.momentum, resolved.flip, resolved.learning_rate) == (0.25, False, 0.5)
    assert resolved.resolutions == (8, 4)
    settings = read_settings(tmp_path / "run")
    assert settings is not None
    assert (settings.seed, settings.holdout, settings.options["dropout"]) == (5, 3, 0.5)
    assert arrn.load(tmp_path / "run").config["options"]["dropout"] == 0.5


@pytest.mark.parametrize(
    ("dataset", "model", "policy"),
    [("sample", "arrn_small", "exact"), ("cifar10", "arrn_cifar10", "exact"), ("stl10", "arrn_stl10", "exact")],
)
def test_each_data_set_has_its_usual_model_and_recipe(
    arrn_command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dataset: str, model: str, policy: str
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("arrn.runs.run_training", lambda *arguments: asked.append(arguments))
    monkeypatch.chdir(tmp_path)
    arrn_command("train", dataset, "--seed", "2")
    settings, folder = asked[0][:2]
    assert isinstance(settings, RunSettings)
    assert (settings.model, settings.recipe.policy, settings.recipe.epochs) == (model, policy, 100)
    assert folder == Path(f"runs/{dataset}-{model}-seed2")


def test_a_folder_named_by_a_relative_path_is_found_again_from_elsewhere(
    arrn_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_easy_set(tmp_path / "pictures")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    arrn_command("train", "pictures", *QUICK)
    out = tmp_path / "runs" / "pictures-arrn-seed0"
    monkeypatch.chdir(tmp_path / "elsewhere")
    arrn_command("evaluate", out, "--resolutions", "8", "--device", "cpu")
    assert "is finished" in arrn_command("train", tmp_path / "pictures", "--out", out, "--resume").out
    monkeypatch.chdir(tmp_path / "pictures")
    monkeypatch.setattr("arrn.runs.run_training", lambda settings, folder, *rest: print(folder))  # noqa: T201
    assert "\nruns/pictures-arrn-seed0\n" in arrn_command("train", ".").out


def test_resume_needs_no_flags_but_the_folder(
    arrn_command: Command, easy: Path, tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with interrupted_after(3, signal.SIGTERM):
        stopped = arrn_command("train", easy, *QUICK, code=1)
    assert stopped.err == (
        "arrn: stopped by SIGTERM at epoch 1, step 3 of 5; a checkpoint is written: go on with --resume, or "
        "end the run there with `arrn finish`\n"
    )
    done = arrn_command("train", easy, "--model", "arrn", "--resume", "--device", "cpu")
    assert "going on from checkpoint-0000-000003.safetensors" in done.out
    out = tmp_path / "runs" / f"{easy.name}-arrn-seed0"
    assert weights(out) == weights(finished)
    again = arrn_command("train", easy, "--model", "arrn", "--resume")
    assert f"the run in {Path('runs') / out.name} is finished" in again.out
    other = arrn_command("train", easy, "--model", "arrn", "--resume", "--epochs", "9", code=2)
    assert "was started with other settings: epochs was 2 and is now 9" in other.err
    assert "is not empty; --resume continues" in arrn_command("train", easy, *QUICK, code=2).err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_before_training_it_says_so_in_a_line(
    arrn_command: Command,
    easy: Path,
    tmp_path: Path,
    finished: Path,
    number: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*arguments: object) -> None:
        signal.raise_signal(number)

    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patched:
        patched.setattr("arrn.runs.training.open_run_data", interrupted)
        assert arrn_command("train", easy, *QUICK, "--out", tmp_path, code=1).err == "arrn: interrupted\n"
    assert signal.getsignal(signal.SIGTERM) is before
    assert os.listdir(tmp_path) == ["run.json"]
    done = arrn_command("train", easy, "--out", tmp_path, "--resume", "--device", "cpu")  # with no other flags
    assert f"there is no checkpoint in {tmp_path} yet: starting afresh" in done.out
    assert weights(tmp_path) == weights(finished)


def test_resume_does_not_ask_for_the_data_set(
    arrn_command: Command, easy: Path, tmp_path: Path, finished: Path
) -> None:
    out = tmp_path / "run"
    with interrupted_after(3, signal.SIGTERM):
        arrn_command("train", easy, *QUICK, "--out", out, code=1)
    other = arrn_command("train", "--resume", "--out", out, "--epochs", "9", code=2)
    assert "was started with other settings: epochs was 2 and is now 9" in other.err
    elsewhere = arrn_command("train", "sample", "--resume", "--out", out, code=2)
    assert f"dataset was {str(easy)!r} and is now 'sample'" in elsewhere.err
    arrn_command("train", "--resume", "--out", out, "--device", "cpu")
    assert weights(out) == weights(finished)
    for arguments in ([], ["--resume"], ["--out", out]):
        assert "name the data set to train on" in arrn_command("train", *arguments, code=2).err
    nowhere = arrn_command("train", "--resume", "--out", tmp_path / "nowhere", code=2)
    assert f"there is no run in {tmp_path / 'nowhere'} to resume" in nowhere.err


def test_where_there_is_no_run_none_is_resumed(arrn_command: Command, easy: Path, tmp_path: Path) -> None:
    for out in (tmp_path / "mistyped", tmp_path):
        failed = arrn_command("train", easy, *QUICK, "--out", out, "--resume", code=2)
        assert failed.err == f"arrn: there is no run in {out} to resume; without --resume a new run starts there\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("test_split", "flags", "suggested"),
    [
        (True, ["--holdout", "3"], "  (next: arrn evaluate {out})"),
        (False, ["--holdout", "3"], "  (next: arrn evaluate {out} --split validation)"),
        (False, [], ""),
    ],
)
def test_what_comes_next_is_what_can_come_next(
    arrn_command: Command, tmp_path: Path, test_split: bool, flags: list[str], suggested: str
) -> None:
    data, out = write_mixed_folder(tmp_path / "data", [(8, 8)], per_class=3), tmp_path / "run"
    if not test_split:
        shutil.rmtree(data / "test")
    done = arrn_command("train", data, *QUICK, *flags, "--out", out)
    assert done.out.splitlines()[-1] == f"trained network: {out}{suggested.format(out=out)}"
    if suggested:
        arrn_command(*suggested.format(out=out).strip(" ()").split()[2:], "--resolutions", "8", "--device", "cpu")


@pytest.mark.parametrize(("times", "said"), [(1, "the others are lost"), (2, "interrupted")])
def test_terminated_while_an_error_is_on_its_way_it_tells_the_error_unless_asked_twice(
    arrn_command: Command, easy: Path, tmp_path: Path, times: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*arguments: object) -> None:
        try:
            raise RunError("the others are lost")
        finally:
            for _ in range(times):
                signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("arrn.runs.training.open_run_data", failing)
    assert arrn_command("train", easy, *QUICK, "--out", tmp_path, code=1).err == f"arrn: {said}\n"


def test_a_loss_that_is_no_number_is_a_failed_run(arrn_command: Command, easy: Path, tmp_path: Path) -> None:
    wild = ["--set", "optimizer=sgd", "--learning-rate", "1e30", "--epochs", "30"]
    failed = arrn_command("train", easy, *QUICK, *wild, "--out", tmp_path / "run", code=1)
    assert "the loss became" in failed.err


def test_a_full_disk_is_one_line_and_nothing_before_it_is_lost(
    arrn_command: Command, easy: Path, tmp_path: Path, finished: Path
) -> None:
    out = tmp_path / "run"
    with interrupted_after(3, signal.SIGINT):
        arrn_command("train", easy, *QUICK, "--out", out, code=1)
    (kept,) = (out / "checkpoints").iterdir()
    content = kept.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(content) // 2, hard))  # enough for all but checkpoints
    try:
        failed = arrn_command("train", easy, "--out", out, "--resume", "--device", "cpu", code=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert f"the latest checkpoint is {kept.name}: make room and go on with --resume" in failed.err
    assert [path.name for path in (out / "checkpoints").iterdir()] == [kept.name]
    assert kept.read_bytes() == content
    arrn_command("train", easy, "--out", out, "--resume", "--device", "cpu")
    assert weights(out) == weights(finished)
    assert timeless_log(out) == timeless_log(finished)


def gone(group: int) -> bool:
    """Whether nobody is left of a process group, soon; Python's own tracker of resources is the last to go."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_a_signal_to_the_whole_group_stops_a_streaming_run_cleanly(
    arrn_command: Command, easy: Path, tmp_path: Path
) -> None:
    """As a cluster's scheduler or a terminal's Ctrl-C does: the processes that read get it too."""
    out = tmp_path / "run"
    command = ["train", easy, *MODEL, "--epochs", "3000", "--batch-size", "4", "--device", "cpu", "--out", out]
    running = subprocess.Popen(
        [sys.executable, "-m", "arrn", *map(str, command), "--stream", "--workers", "1", "--checkpoint-every", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env=os.environ | QUIET,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not list(out.glob("checkpoints/checkpoint-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGTERM)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 1, err
    assert err.startswith("arrn: stopped by SIGTERM at ")
    assert err.endswith("or end the run there with `arrn finish`\n")
    assert err.count("\n") == 1
    assert gone(running.pid)


def test_bad_samples_are_named_or_skipped_and_counted(arrn_command: Command, tmp_path: Path) -> None:
    data = write_mixed_folder(tmp_path / "data", [(8, 8)], per_class=3)
    bad = data / "train" / "blue" / "001.png"
    bad.write_bytes(bad.read_bytes()[:75])
    command = ["train", data, *QUICK, "--out", tmp_path / "run"]
    refused = arrn_command(*command, code=2).err
    assert f"{bad}: cannot be decoded" in refused
    assert refused.endswith("; --skip-bad leaves out samples that cannot be read\n")
    assert f"skipped 1 bad sample: {bad}: cannot be decoded" in arrn_command(*command, "--skip-bad").out
    assert (tmp_path / "run" / "skipped.txt").read_text().startswith(f"{bad}: cannot be decoded")
    (data / "test" / "red" / "000.png").write_bytes(b"")
    out = arrn_command("evaluate", tmp_path / "run", "--resolutions", "8", "--device", "cpu").out
    assert f"skipped 1 bad sample: {data / 'test' / 'red' / '000.png'}: it is empty" in out  # as the run was trained
    found = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert (found["skipped"], len(found["skipped_samples"])) == (1, 1)
    for number in range(1, 3):
        (data / "test" / "red" / f"00{number}.png").write_bytes(b"")
    for colour in ("blue", "green"):
        (data / "test" / colour / "000.png").write_bytes(b"")
    many = arrn_command("evaluate", tmp_path / "run", "--resolutions", "8", "--device", "cpu", code=2)
    assert "no sample of class 'red' of data can be used" in many.err
    Image.new("RGB", (8, 8)).save(data / "test" / "red" / "009.png")
    many = arrn_command("evaluate", tmp_path / "run", "--resolutions", "8", "--device", "cpu")
    assert f"; and 2 more; all are in {tmp_path / 'run' / 'evaluation.json'}" in many.out
    other = arrn_command("evaluate", tmp_path / "run", "--dataset", data, "--device", "cpu", code=2)
    assert other.err.endswith("it is empty; --skip-bad leaves out samples that cannot be read\n")


def test_tensorboard_is_asked_for_before_anything_is_written(
    arrn_command: Command, easy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # as if it were not installed
    failed = arrn_command("train", easy, *QUICK, "--tensorboard", "--out", tmp_path / "run", code=2)
    advice = "pip install '.[tensorboard]' in a clone of the repository"
    assert failed.err == f"arrn: --tensorboard needs tensorboard: {advice}\n"
    assert not (tmp_path / "run").exists()


def test_a_grey_image_cannot_be_normalised(arrn_command: Command, tmp_path: Path) -> None:
    for name in ("grey", "gray"):
        (tmp_path / "data" / name).mkdir(parents=True)
        Image.new("L", (8, 8), 128).save(tmp_path / "data" / name / "0.png")
    failed = arrn_command("train", tmp_path / "data", *QUICK, "--out", tmp_path / "run", code=2)
    assert "the training samples are constant" in failed.err


def test_an_image_of_each_class_is_enough(arrn_command: Command, tmp_path: Path) -> None:
    write_mixed_folder(tmp_path / "data", [(5, 9)], per_class=1)
    arrn_command("train", tmp_path / "data", *QUICK, "--out", tmp_path / "run")
    arrn_command("evaluate", tmp_path / "run", "--device", "cpu")


def test_larger_images_are_taken_where_a_flag_says_so(
    arrn_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, run = write_mixed_folder(tmp_path / "data", [(8, 8), (9, 9)], 4), tmp_path / "run"
    monkeypatch.setattr("arrn.runtime.files.MOST_PIXELS", 80)
    train = ("train", data, *MODEL, "--epochs", "1", "--holdout", "3", "--out", run, "--device", "cpu")
    refused = "9x9, is 81 pixels, more than the limit of 80: raise --max-pixels (max_pixels)"
    assert refused in arrn_command(*train, code=2).err
    arrn_command(*train, "--max-pixels", 81)
    for what in (("--resolutions", "8"), ("--cascade",)):
        evaluate = ("evaluate", run, *what, "--device", "cpu")
        assert refused in arrn_command(*evaluate, code=2).err
        arrn_command(*evaluate, "--max-pixels", 81)
