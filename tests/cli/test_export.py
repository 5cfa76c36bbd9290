"""`arrn export`: what it prints, what it refuses, and what it leaves alone."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from commands import Command

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")


def test_every_file_is_told_with_its_difference_from_pytorch(
    arrn_command: Command, finished: Path, tmp_path: Path
) -> None:
    lines = arrn_command("export", finished, "--out", tmp_path / "out").out.splitlines()
    files = ("level-8.onnx", "level-4.onnx", "any-size.onnx")
    for line, file in zip(lines, files, strict=False):
        assert line.startswith(f"{file}: 0.0")
        assert "MB, differs from PyTorch by " in line
    assert any(line.startswith("4 files and manifest.json: ") for line in lines)
    # An earlier export is replaced, by one of other levels too.
    arrn_command("export", finished, "--levels", "4", "--out", tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"level-4.onnx", "resample.onnx", "manifest.json"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--to", "tflite"], "unknown target 'tflite'"),
        (["--levels", "7"], "the network has no level '7': its levels are 8, 4"),
        (["--levels", "8,,4"], "--levels takes all, or grids with commas between, such as 32,16,8; got '8,,4'"),
        (["--policy", "best"], "unknown policy 'best'"),
    ],
)
def test_what_cannot_be_meant_is_told_in_a_line(
    arrn_command: Command, finished: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    assert words in arrn_command("export", finished, *options, "--out", tmp_path / "out", code=2).err
    assert list(tmp_path.iterdir()) == []


def test_folders_with_other_files_are_left_alone(arrn_command: Command, finished: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    words = arrn_command("export", finished, "--out", tmp_path, code=2).err
    assert "holds other files, such as 'notes.txt'" in words
    words = arrn_command("export", finished, "--out", tmp_path / "notes.txt", code=2).err
    assert "is a file: --out takes the name of a new folder" in words
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_programs_of_torch_export(arrn_command: Command, finished: Path, tmp_path: Path) -> None:
    out = arrn_command("export", finished, "--to", "pt2", "--levels", "4", "--out", tmp_path / "out").out
    assert "MB, differs from PyTorch by" in out
    assert (tmp_path / "out/level-4.pt2").is_file()
    assert json.loads((tmp_path / "out/manifest.json").read_text())["target"] == "pt2"


@pytest.mark.skipif(importlib.util.find_spec("executorch") is not None, reason="executorch is there")
def test_a_package_that_is_missing_is_told_in_a_line(arrn_command: Command, finished: Path, tmp_path: Path) -> None:
    words = arrn_command("export", finished, "--to", "executorch", "--out", tmp_path / "out", code=2).err
    assert "exporting for ExecuTorch needs executorch: pip install '.[executorch]'" in words


def test_8_bit_files_need_samples(
    arrn_command: Command, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arrn.deploy.quantising._compare_speed", lambda *_: 2.0)  # tests time nothing
    out = arrn_command("export", finished, "--levels", "4", "--int8", "--samples", "6", "--out", tmp_path / "out").out
    assert "level-4-int8.onnx: kept: " in out
    assert "(6 samples)" in out
    words = arrn_command("export", finished, "--samples", "6", "--out", tmp_path / "no", code=2).err
    assert "--dataset, --data and --samples are for 8-bit files: add --int8" in words
    words = arrn_command("export", finished, "--int8", "--to", "pt2", "--out", tmp_path / "no", code=2).err
    assert "8-bit files are made for ONNX, not for 'pt2'" in words
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("model.safetensors", "config.json"):
        shutil.copy(finished / name, bare)
    words = arrn_command("export", bare, "--int8", "--out", tmp_path / "no", code=2).err
    assert "does not say which data set it was trained on: name one with --dataset" in words
    assert not (tmp_path / "no").exists()
