"""The command line, run as a program."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer")


def arrn(*arguments: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "arrn", *arguments],
        capture_output=True,
        encoding="utf-8",
        env=os.environ
        | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "PYTHONIOENCODING": "utf-8"}
        | environment,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_demo_shows_the_table_and_draws_the_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    text = arrn("demo", "--out", str(tmp_path / "pictures")).stdout
    assert "96x96" in text
    assert "1 of 4" in text
    errors = [float(line.split("│")[-2]) for line in text.splitlines() if line.startswith("│")]
    assert len(errors) == 7
    assert max(errors) < 1e-4
    assert "by smoothing kernel: perfect" in text
    for name in ("pyramid.png", "kernels.png"):
        assert (tmp_path / "pictures" / name).read_bytes().startswith(b"\x89PNG")


def test_models_and_kernels(tmp_path: Path) -> None:
    listed = arrn("models").stdout
    assert "resnet18_switchable" in listed
    assert "1.60 M to 2.15 M" in listed
    report = arrn("kernels", "--size", "20", "--next-size", "9", "--plot", str(tmp_path / "k.svg")).stdout
    assert "poor/symmetric 20 -> 9" in report
    assert "<svg" in (tmp_path / "k.svg").read_text()


def test_help_and_version() -> None:
    assert "Example: arrn demo --out /tmp/demo" in arrn("demo", "--help").stdout
    assert arrn("--version").stdout.strip() == __import__("arrn").__version__


def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    failed = arrn("kernels", "--next-size", "64", code=2)
    assert failed.stderr == "arrn: quality is that of smoothing down: next_size must be below 32, got 64\n"
    assert arrn("kernels", "--plot", "k.jpg", code=2).stderr.count("\n") == 1
    arrn("nonsense", code=2)


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('no typer', name='typer')")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    failed = arrn("models", code=2, PYTHONPATH=paths)
    assert failed.stderr == "arrn: the command line needs typer: pip install 'arrn[train]'\n"
