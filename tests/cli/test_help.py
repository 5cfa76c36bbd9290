"""Help that teaches, and shell completion."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import arrn
from commands import Command, program


@pytest.mark.parametrize(
    "name",
    ["train", "evaluate", "predict", "demo", "reproduce", "sweep", "figures", "benchmark", "models", "kernels"],
)
def test_every_commands_help_has_examples(arrn_command: Command, name: str) -> None:
    out = arrn_command(name, "--help").out
    assert re.search(r"Examples?:", out)
    assert f"arrn {name}" in out.partition("Example")[2]


def test_the_examples_name_options_that_there_are(arrn_command: Command) -> None:
    for name in ("train", "evaluate", "predict", "reproduce", "sweep", "figures", "benchmark"):
        out = arrn_command(name, "--help").out
        examples, _, options = out.partition("Example")[2].partition("─ Arguments")
        used = set(re.findall(r"--[a-z-]+", examples))
        assert used <= set(re.findall(r"--[a-z-]+", options)), used


def test_the_version(arrn_command: Command) -> None:
    assert arrn_command("--version").out == f"{arrn.__version__}\n"


def test_without_a_command_it_shows_the_help() -> None:
    done = program(code=2)
    assert "Usage: arrn" in done.stdout + done.stderr


def test_completion_and_help_do_not_wait_for_torch() -> None:
    code = "import sys, arrn.cli.app; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_completion_offers_commands_and_options() -> None:
    asked = {"_ARRN_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
    assert program(COMP_WORDS="arrn ev", **asked).stdout.split() == ["evaluate"]
    asked["COMP_CWORD"] = "2"
    offered = program(COMP_WORDS="arrn train --re", **asked).stdout.split()
    assert {"--recipe", "--resolutions", "--resume"} <= set(offered)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_the_completion_script_is_for_arrn_and_bash_accepts_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "arrn", "--show-completion", "bash"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )
    assert "_ARRN_COMPLETE=complete_bash" in done.stdout
    (tmp_path / "completion.sh").write_text(done.stdout)
    subprocess.run(["bash", "-n", str(tmp_path / "completion.sh")], check=True)
