"""The page of the first project: its Python and its commands run, one after another, as they are written."""

import re
import shlex
from pathlib import Path

import pytest

from commands import Command

pytest.importorskip("typer")

PAGE = Path(__file__).parents[1] / "docs" / "first_project.md"
LONG = {"each=250": "each=24", "$ arrn train photos": "$ arrn train photos --epochs 1", "epochs=3": "epochs=1"}
STEP = re.compile(r"^```(\w*)\n(?:\$ arrn )?(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_every_step_of_the_page_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arrn_command = Command(capsys, monkeypatch)
    said = {}
    page = PAGE.read_text()
    for long, short in LONG.items():  # than a test has time for
        assert long in page
        page = page.replace(long, short)
    for language, step in STEP.findall(page):
        if language == "python":
            exec(compile(step, PAGE.name, "exec"), {})
        elif not language:
            words = shlex.split(step.partition("\n")[0])
            said[words[0]] = arrn_command(*words).out
    assert list(said) == ["advise", "train", "evaluate", "predict"]
    for command in ("advise", "train"):
        assert said[command].startswith("96 images from 16 to 32 px: arrn with 32 -> 16 -> 8 -> 4, batch 8, about ")
    assert "next: arrn evaluate runs/photos --split validation" in said["train"]
    assert "numbers: runs/photos/evaluation-validation.json" in said["evaluate"]
    assert all(f"new/{name}-{side}.png" in said["predict"] for name in ("horse", "ship") for side in (16, 24, 32))
