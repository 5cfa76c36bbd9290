"""A real process group, killed with SIGKILL at ten random moments, ends with the bits of one that was left alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from small_runs import timeless_log, tiny_settings, weights, write_mixed_folder

KILLS = 10

# Torch is loaded once, with what it loads for a first network (its compiler, which takes seconds); each attempt is a
# fork of this process, in a process group of its own. A run that comes to its end before it was killed often enough is
# followed by another.
LAUNCHER = """
import os, random, signal, sys, time
import PIL.PngImagePlugin, arrn.cli.app, arrn.data, arrn.provenance, arrn.runs
from arrn.cli import main
from arrn.models import create_model

create_model("arrn", sizes=[8, 4], features=[4, 8])
folder, wanted, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]

def start(out):
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        begun = os.path.exists(f"{folder}/{out}/run.json")
        sys.argv = ["arrn", *command, "--out", f"{folder}/{out}", *["--resume"] * begun]
        main()
    os.setpgid(pid, pid)  # whichever of the two comes first
    return pid

def end(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

began = time.monotonic()
assert end(start("whole")) == 0
took = time.monotonic() - began
moments, kills, runs = random.Random(3), 0, 0
while kills < wanted:
    pid = start(f"killed-{runs}")
    time.sleep(moments.uniform(0, took / 4))
    os.killpg(pid, signal.SIGKILL)
    code = end(pid)
    assert code in (0, -signal.SIGKILL), code
    kills += code != 0
    runs += code == 0
assert end(start(f"killed-{runs}")) == 0
print(f"{kills} kills", flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes to fork")
def test_killed_at_ten_random_moments_a_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    data = write_mixed_folder(tmp_path / "data", [(8, 8), (5, 5), (3, 4)], per_class=6)
    options = [f"{name}={value}".replace(" ", "") for name, value in tiny_settings(data).options.items()]
    command = ["train", str(data), "--model", "arrn", "--epochs", "16", "--batch-size", "4", "--device", "cpu"]
    command += ["--checkpoint-every", "0.4", *(word for option in options for word in ("--option", option))]
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, str(tmp_path), str(KILLS), *command],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"{KILLS} kills" in done.stdout
    assert "going on from checkpoint-" in done.stdout
    for killed in tmp_path.glob("killed-*"):
        assert weights(killed) == weights(tmp_path / "whole")
        assert timeless_log(killed) == timeless_log(tmp_path / "whole")
        assert not list(killed.rglob(".*"))  # what was half written is gone
