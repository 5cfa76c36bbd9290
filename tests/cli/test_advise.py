"""`arrn advise`, and `arrn train` of a folder without a model: what is proposed trains as it is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import arrn
from arrn.runs import read_settings
from commands import QUIET, Command
from pictures import write_folder
from sounds import write_npz, write_tones


def test_the_command_prints_the_reasons_and_train_takes_the_proposal(arrn_command: Command, tmp_path: Path) -> None:
    write_folder(tmp_path / "set", {"cat": [(16, 16)] * 20, "dog": [(12, 20)] * 20})
    told = arrn_command("advise", tmp_path / "set", "--device", "cpu").out
    assert re.search(r"40 images from 16 to 20 px: arrn with 20 -> 10 -> 5, batch 8, about [\d.]+ s an epoch", told)
    assert "- holdout 6: " in told
    assert "the same as: arrn train" in told
    done = arrn_command("train", tmp_path / "set", "--epochs", 1, "--out", tmp_path / "run", "--device", "cpu").out
    assert "arrn with 20 -> 10 -> 5, batch 8" in done
    kept = read_settings(tmp_path / "run")
    assert kept is not None
    assert (kept.model, kept.options["sizes"], kept.holdout, kept.recipe.epochs) == ("arrn", [20, 10, 5], 6, 1)
    assert arrn.load(tmp_path / "run").sizes == (20, 10, 5)
    assert "the run in" in arrn_command("train", "--resume", "--out", tmp_path / "run").out


def test_what_was_skipped_is_named_and_is_skipped_in_the_proposed_command(
    arrn_command: Command, tmp_path: Path
) -> None:
    write_folder(tmp_path / "set", {"cat": [(16, 16)] * 20, "dog": [(12, 16)] * 20})
    bad = tmp_path / "set" / "dog" / "3.png"
    bad.write_bytes(bad.read_bytes()[:20])
    assert f"{bad}: cannot be decoded" in arrn_command("advise", tmp_path / "set", "--device", "cpu", code=2).err
    told = arrn_command("advise", tmp_path / "set", "--skip-bad", "--device", "cpu").out
    assert f"skipped 1 bad sample: {bad}: cannot be decoded" in told
    assert told.splitlines()[-1].endswith(" --skip-bad")
    assert "- 19 of 39 images have other proportions than the network's grids, 1:1 (one is 12x16): they are" in told


def test_it_says_that_only_headers_were_read(arrn_command: Command, tmp_path: Path) -> None:
    write_folder(tmp_path / "set", {"cat": [(16, 16)] * 20, "dog": [(12, 16)] * 20})
    cut = tmp_path / "set" / "dog" / "3.png"
    cut.write_bytes(cut.read_bytes()[:-40])  # its header is whole
    told = arrn_command("advise", tmp_path / "set", "--device", "cpu").out
    assert "- only the header of each image was read: an image that is cut short is named by the training" in told
    whole = arrn_command("advise", tmp_path / "set", "--skip-bad", "--device", "cpu").out
    assert f"skipped 1 bad sample: {cut}" in whole
    assert "only the header" not in whole


LIMITED = """
import resource, sys
import torch, torchvision, arrn.runs, arrn.cli.app  # what is loaded counts too
taken = int(open("/proc/self/statm").read().split()[5]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_DATA, (taken + 500_000_000, resource.RLIM_INFINITY))
from arrn.cli import main
sys.argv = ["arrn", *sys.argv[1:]]
main()
"""

FOLDERS = {
    "few": {"a": [(24, 40), (64, 96)] * 5, "b": [(40, 24), (80, 80)] * 5},
    "many": {"a": [(12, 12)] * 150, "b": [(10, 12)] * 150},
    "tiny": {"a": [(5, 7)] * 12, "b": [(8, 8)] * 12},
    "large": {"a": [(400, 300)] * 8, "b": [(320, 480)] * 8},
    "uneven": {"a": [(20, 20)] * 60, "b": [(24, 20)] * 6},
}


def write_set(name: str, root: Path) -> Path:
    if name == "clips":
        return write_tones(root, per_class=8, rate=4000)
    if name == "volumes":
        return write_npz(root.with_suffix(".npz"), 20, (12, 12, 12))
    write_folder(root, FOLDERS[name])
    return root


PROPOSED = r": arrn with \d+( -> \d+)+, batch \d+, about [\d.]+ (s|min) an epoch"


@pytest.mark.parametrize("name", [*FOLDERS, "clips", "volumes"])
def test_every_kind_of_folder_trains_as_it_is(name: str, tmp_path: Path, arrn_command: Command) -> None:
    root = write_set(name, tmp_path / "set")
    done = arrn_command("train", root, "--out", tmp_path / "run", "--epochs", 1, "--device", "cpu")
    assert re.search(PROPOSED, done.out)
    assert arrn.load(tmp_path / "run").grids


NAMES = [name if name == "large" else pytest.param(name, marks=pytest.mark.slow) for name in (*FOLDERS, "clips")]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is limited as Linux does it")
@pytest.mark.parametrize("name", NAMES)
def test_within_half_a_gigabyte_too(name: str, tmp_path: Path) -> None:
    root = write_set(name, tmp_path / "set")
    command = [sys.executable, "-c", LIMITED, "train", str(root), "--out", str(tmp_path / "run"), "--epochs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | QUIET, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(PROPOSED, done.stdout)
