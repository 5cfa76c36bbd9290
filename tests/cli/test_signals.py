"""Sound and volumes through the real command: trained, evaluated, asked; and what does not go together."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arrn
from commands import Command
from sounds import tone, write_npz, write_tones, write_wav

LADDER = ["--model", "arrn", "--option", "features=[4,4,8]", "--option", "depth=1", "--option", "expansion=2"]
QUICK = ["--device", "cpu", "--epochs", 6, "--batch-size", 8, "--learning-rate", 0.02]


@pytest.fixture(scope="module")
def tones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tones(tmp_path_factory.mktemp("tones"))


def results(file: Path) -> dict[int, dict[str, Any]]:
    return {result["resolution"]: result for result in json.loads(file.read_text())["results"]}


def test_sound_from_training_to_a_prediction(
    arrn_command: Command, tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    ladder = [*LADDER, "--option", "sizes=[64,32,16]"]
    trained = arrn_command("train", tones, *ladder, *QUICK, "--epochs", 30, "--out", run)
    assert "flip = false" in trained.out
    assert json.loads((run / "run.json").read_text())["settings"]["window"] == 1.0
    model = arrn.load(run)
    assert (model.ndim, model.in_channels, model.metadata.window) == (1, 1, 1.0)
    arrn_command("evaluate", run, "--resolutions", "64,32,16", "--policy", "exact", "--adapt", "--device", "cpu")
    found = results(run / "evaluation.json")
    assert set(found) == {64, 32, 16}
    assert found[64]["levels"][0]["grid"] == "64"
    assert found[64]["accuracy"] > 0.8
    # A file of half the rate enters at half the grid.
    monkeypatch.chdir(tmp_path)  # short names keep the table's rows on one line
    files = [write_wav(Path(f"{rate}.wav"), tone(rate, 6, 1.5), rate) for rate in (64, 32)]
    out = arrn_command("predict", run, *files, "--device", "cpu").out
    assert [line.split("│")[5].strip() for line in out.splitlines() if line.startswith("│")] == ["64", "32"]
    assert out.splitlines()[1].split("┃")[1].strip() == "sound"


def test_a_window_and_a_rate_are_part_of_a_run(arrn_command: Command, tones: Path, tmp_path: Path) -> None:
    write_wav(tones / "train" / "low" / "stereo.wav", tone(64, 2)[:, None].repeat(2, axis=1), 64)
    arguments = ["train", tones, *LADDER, "--option", "sizes=[16,8,4]", "--device", "cpu", "--epochs", 1]
    heard = ["--window", 0.5, "--sample-rate", 32]
    out = arrn_command(*arguments, *heard, "--out", tmp_path / "run").out
    assert "17 of 17 clips are resampled from 64 to 32 Hz" in out
    assert "1 of 17 clips are mixed down from 2 channels to one" in out
    out = arrn_command("evaluate", tmp_path / "run", "--resolutions", "16", "--device", "cpu").out
    assert "16 of 16 clips are resampled from 64 to 32 Hz" in out
    remarks = json.loads((tmp_path / "run" / "evaluation.json").read_text())["remarks"]
    assert remarks == ["16 of 16 clips are resampled from 64 to 32 Hz"]
    arrn_command(*arguments, "--out", tmp_path / "run", "--resume")
    other = arrn_command(*arguments, "--window", 0.25, "--out", tmp_path / "run", "--resume", code=2)
    assert "window was 0.5 and is now 0.25" in other.err
    assert "a number of seconds above 0, got -1" in arrn_command(*arguments, "--window", -1, code=2).err


def test_a_clip_of_no_length(arrn_command: Command, tmp_path: Path) -> None:
    root = write_tones(tmp_path / "tones", per_class=3)
    write_wav(root / "train" / "low" / "none.wav", tone(64, 2)[:0], 64)
    arguments = ["train", root, *LADDER, "--option", "sizes=[64,32,16]", "--device", "cpu", "--epochs", 1]
    failed = arrn_command(*arguments, "--out", tmp_path / "run", code=2)
    assert f"{root / 'train' / 'low' / 'none.wav'}: it has no samples" in failed.err
    assert "skipped 1 bad sample: " in arrn_command(*arguments, "--skip-bad", "--out", tmp_path / "run").out


def test_volumes_from_training_to_a_prediction(
    arrn_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in (("organ", 6), ("organ_64", 12)):
        write_npz(tmp_path / "organ" / f"{name}.npz", 18, (size, size, size))
    run = tmp_path / "run"
    ladder = [*LADDER, "--option", "sizes=[12,6,4]"]
    out = arrn_command("train", "organ", "--data", tmp_path / "organ", *ladder, *QUICK, "--out", run).out
    assert "organ_64.npz is read" in out
    assert "validation" in out
    assert arrn.load(run).ndim == 3
    told = arrn_command("evaluate", run, "--resolutions", "12,6", "--policy", "exact", "--adapt", "--device", "cpu")
    assert "balanced accuracy in %" in told.out
    found = results(run / "evaluation.json")
    assert set(found) == {12, 6}
    assert found[12]["balanced_accuracy"] > 0.9
    arrn_command("evaluate", run, "--resolutions", "12", "--split", "validation", "--device", "cpu")
    monkeypatch.chdir(tmp_path)
    for name, shape in (("large", (12, 12, 12)), ("small", (6, 5, 4))):
        np.save(name, np.zeros(shape, dtype=np.uint8))
    out = arrn_command("predict", run, "large.npy", "small.npy", "--device", "cpu").out
    assert [line.split("│")[5].strip() for line in out.splitlines() if line.startswith("│")] == ["12", "6"]
    assert "x.wav: no such file" in arrn_command("predict", run, "x.wav", code=2).err


def test_what_does_not_go_together_is_one_line(arrn_command: Command, tones: Path, tmp_path: Path) -> None:
    volumes = write_npz(tmp_path / "volumes.npz")
    grey = write_npz(tmp_path / "grey.npz", 12, (8, 8))
    broken = write_npz(tmp_path / "broken.npz", test_labels=None)
    out = ["--out", tmp_path / "run", "--device", "cpu", "--epochs", 1]
    for root, model, complaint in (
        (volumes, "arrn_small", "'arrn_small' takes images of 2 axes, but 'volumes' holds volumes of 3 axes"),
        (volumes, "resnet18_small_stem", "take 'arrn_volume_small'"),
        (grey, "arrn_volume_small", "'arrn_volume_small' takes volumes of 3 axes, but 'grey' holds images of 2 axes"),
        (tones, "arrn_small", "holds clips of 1 axis: take 'arrn_audio_small'"),
        (broken, "arrn_volume_small", "broken.npz has no 'test_labels'; its keys are"),
    ):
        assert complaint in arrn_command("train", root, "--model", model, *out, code=2).err
    ladder = ["--model", "arrn", "--option", "sizes=[8,4]", "--option", "features=[4,4]"]
    arrn_command("train", grey, *ladder, *out)
    assert arrn.load(tmp_path / "run").in_channels == 1
    failed = arrn_command("evaluate", tmp_path / "run", "--dataset", volumes, "--device", "cpu", code=2)
    assert "'arrn' takes images of 2 axes, but 'volumes' holds volumes" in failed.err
    failed = arrn_command("evaluate", tmp_path / "run", "--dataset", "sample", "--device", "cpu", code=2)
    assert "takes 1 channel, but the images of 'sample' have 3" in failed.err


def test_the_named_models_are_listed(arrn_command: Command) -> None:
    listed = arrn_command("models", "audio", "volume").out
    assert "8000 4000 2000" in listed
    assert "64 28 14 7" in listed
