"""`arrn predict`."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import arrn.data
import arrn.evaluation.prediction
from commands import Command
from pictures import picture


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    found = []
    for height, width in ((8, 8), (30, 50), (3, 4), (4, 4), (5, 2)):
        path = tmp_path / f"{height}x{width}.png"
        Image.fromarray(np.asarray(picture(height, width))).save(path)
        found.append(path)
    return found


def rows(out: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]


def test_files_of_different_sizes_get_class_probability_level_and_time(
    arrn_command: Command, finished: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files[0].parent)
    out = arrn_command("predict", finished, *(path.name for path in files), "--device", "cpu").out
    found = rows(out)
    assert [row[0] for row in found] == [path.name for path in files]
    assert [row[1] for row in found] == ["8x8", "30x50", "3x4", "4x4", "5x2"]
    assert {row[2] for row in found} <= {"red", "green", "blue"}
    assert all(row[3].endswith("%") and 33 <= float(row[3][:-1]) <= 100 for row in found)
    assert [row[4] for row in found] == ["8", "8", "4", "4", "8"]
    assert all(row[5].endswith(" ms") for row in found)


def test_a_file_that_cannot_be_read_does_not_stop_the_others(
    arrn_command: Command, finished: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files[0].parent)
    Path("none.png").write_bytes(b"no image")
    told = arrn_command("predict", finished, "8x8.png", "none.png", "8x8.png", "gone.png", "--device", "cpu", code=2)
    assert [row[0] for row in rows(told.out)] == ["8x8.png", "8x8.png"]
    assert "not read: none.png: not an image of a known format" in told.out
    assert "not read: gone.png: no such file" in told.out
    assert told.err == "arrn: 2 of 4 files could not be read\n"
    assert "none.png: not an image" in arrn_command("predict", finished, "none.png", "--device", "cpu", code=2).err
    told = arrn_command("predict", finished, "none.png", "gone.png", "--device", "cpu", code=2)
    assert [line.split(":")[1] for line in told.out.splitlines()] == [" none.png", " gone.png"]
    assert told.err == "arrn: 2 of 2 files could not be read\n"


def test_many_files_are_read_a_few_at_a_time(
    arrn_command: Command, finished: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files[0].parent)
    order: list[str] = []
    model_input, read = "arrn.evaluation.prediction._predict_group", arrn.data.read_input
    group = arrn.evaluation.prediction._predict_group
    monkeypatch.setattr("arrn.evaluation.prediction._TOGETHER", 2)
    monkeypatch.setattr("arrn.data.read_input", lambda path, *rest: (order.append("read"), read(path, *rest))[1])
    monkeypatch.setattr(model_input, lambda *given: (order.append("answer"), group(*given))[1])
    out = arrn_command("predict", finished, *(path.name for path in files), "--device", "cpu").out
    assert [row[0] for row in rows(out)] == [path.name for path in files]
    warm = ["read", "answer"]
    assert order == [*warm, "read", "answer", "read", "read", "answer", "read", "answer"]


def test_the_policy_can_be_chosen(
    arrn_command: Command, finished: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files[0].parent)
    out = arrn_command("predict", finished, "5x2.png", "--policy", "cheap", "--device", "cpu").out
    assert rows(out)[0][4] == "4"
