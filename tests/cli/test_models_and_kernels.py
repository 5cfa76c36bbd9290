"""`arrn models`, `arrn kernels`, and what is said where the packages of the command line are missing."""

import os
from pathlib import Path

from commands import Command, program


def test_models_are_listed_with_their_costs(arrn_command: Command) -> None:
    listed = arrn_command("models", "arrn_small", "arrn_resnet18", "switchable").out
    assert "resnet18_switchable" in listed
    assert "0.11 to 0.12" in listed
    assert "8.40 to 11.23 │        0.05" in listed  # what a transplant adds stands apart
    assert "mobilenet" not in listed
    assert "did you mean 'arrn_small'?" in arrn_command("models", "arn_small", code=2).err


def test_kernels_are_reported_and_drawn(arrn_command: Command, tmp_path: Path) -> None:
    report = arrn_command("kernels", "--size", "20", "--next-size", "9", "--plot", tmp_path / "k.svg").out
    assert "poor/symmetric 20 -> 9" in report
    assert "<svg" in (tmp_path / "k.svg").read_text()


def test_kernels_refuse_what_is_no_smoothing_down(arrn_command: Command) -> None:
    failed = arrn_command("kernels", "--next-size", "64", code=2)
    assert failed.err == "arrn: quality is that of smoothing down: next_size must be below 32, got 64\n"
    arrn_command("kernels", "--plot", "k.jpg", code=2)


def test_where_the_picture_cannot_be_is_one_line(arrn_command: Command, tmp_path: Path) -> None:
    small = ["--size", "8", "--next-size", "4", "--plot"]
    (tmp_path / "file").write_text("")
    failed = arrn_command("kernels", *small, tmp_path / "file" / "k.png", code=2)
    assert failed.err == f"arrn: {tmp_path / 'file'}: File exists\n"
    (tmp_path / "k.png").mkdir()
    assert f"{tmp_path / 'k.png'}: Is a directory" in arrn_command("kernels", *small, tmp_path / "k.png", code=2).err
    odd = tmp_path / "odd[red]" / "k.png"
    assert f"picture: {odd}\n" in arrn_command("kernels", *small, odd).out


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('no typer', name='typer')")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    failed = program("models", code=2, PYTHONPATH=paths)
    assert failed.stderr == "arrn: the command line needs typer: pip install '.[train]' in a clone of the repository\n"
