"""Real processes, killed with SIGKILL at random moments, end with the bits of a run that was left alone."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from small_runs import timeless_log, tiny_settings, weights, write_mixed_folder

# Torch is loaded once, with what it loads for a first network (its compiler, which takes seconds); each attempt is a
# team of forks of this process, in a process group of their own, which find each other as torchrun's do. One of them
# is killed, or all; when one is, torchrun asks the others to stop, and so does this. A run that comes to its end
# before it was killed often enough is followed by another. CUDA is not touched before the forks.
LAUNCHER = """
import glob, os, random, signal, socket, sys, time
import PIL.PngImagePlugin, arrn.cli.app, arrn.data, arrn.provenance, arrn.runs
from arrn.cli import main
from arrn.models import create_model

create_model("arrn", sizes=[8, 4], features=[4, 8])
folder, wanted, members, command = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]

def start(out):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    begun = os.path.exists(f"{folder}/{out}/run.json")
    team = []
    for rank in range(members):
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, team[0] if team else 0)
            if members > 1:
                os.environ |= {"WORLD_SIZE": str(members), "RANK": str(rank), "LOCAL_RANK": str(rank)}
                os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            sys.argv = ["arrn", *command, "--out", f"{folder}/{out}", *["--resume"] * begun]
            main()
        team.append(pid)
        os.setpgid(pid, team[0])  # whichever of the two comes first
    return team

def codes(team):
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in team]

def left(team):
    return [pid for pid in team if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None]

def end(team):
    for pid in left(team):
        os.kill(pid, signal.SIGTERM)
    patience = time.monotonic() + 2  # one that waits for the others to join does not listen
    while left(team) and time.monotonic() < patience:
        time.sleep(0.01)
    for pid in left(team):
        os.kill(pid, signal.SIGKILL)
    return codes(team)

began = time.monotonic()
whole = start("whole")
while left(whole) and not os.path.exists(f"{folder}/whole/log.jsonl"):
    time.sleep(0.005)
ready = time.monotonic() - began
assert set(codes(whole)) == {0}
took = time.monotonic() - began
moments, kills, runs, begun = random.Random(3), 0, 0, False
while kills < wanted or not begun:  # some kills come before the first checkpoint, one at least after it
    team = start(f"killed-{runs}")
    time.sleep(moments.uniform(ready / 2, ready + (took - ready) / 4))
    for pid in moments.choice([team, *([pid] for pid in team)]):
        os.kill(pid, signal.SIGKILL)
    ended = end(team)
    # A process that is still starting dies of the SIGTERM that ends the others.
    assert set(ended) <= {0, 1, -signal.SIGKILL, -signal.SIGTERM}, ended
    kills += -signal.SIGKILL in ended
    begun = begun or (set(ended) != {0} and bool(glob.glob(f"{folder}/killed-{runs}/checkpoints/checkpoint-*")))
    runs += set(ended) == {0}
assert set(codes(start(f"killed-{runs}"))) == {0}
print(f"{kills} kills", flush=True)
"""

GPUS = torch.cuda.device_count()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes to fork")
@pytest.mark.parametrize(
    ("device", "members", "kills", "epochs"),
    [
        ("cpu", 1, 10, 16),
        ("cpu", 2, 3, 8),
        pytest.param("cpu", 2, 6, 16, marks=pytest.mark.slow),
        pytest.param("cuda", 1, 10, 60, marks=pytest.mark.skipif(GPUS < 1, reason="no GPU")),
        pytest.param("cuda", 2, 8, 60, marks=pytest.mark.skipif(GPUS < 2, reason="no two GPUs")),
    ],
)
def test_killed_at_random_moments_a_run_ends_with_the_same_bits(
    device: str, members: int, kills: int, epochs: int, tmp_path: Path
) -> None:
    data = write_mixed_folder(tmp_path / "data", [(8, 8), (5, 5), (3, 4)], per_class=6)
    options = [f"{name}={value}".replace(" ", "") for name, value in tiny_settings(data).options.items()]
    command = ["train", str(data), "--model", "arrn", "--epochs", str(epochs), "--batch-size", "4", "--device", device]
    command += ["--checkpoint-every", "0.4", *(word for option in options for word in ("--option", option))]
    command += ["--deterministic"] * (device == "cuda")
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, str(tmp_path), str(kills), str(members), *command],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(re.search(r"(\d+) kills", done.stdout)[1]) >= kills
    assert "going on from checkpoint-" in done.stdout
    for killed in tmp_path.glob("killed-*"):
        assert weights(killed) == weights(tmp_path / "whole")
        told, whole = timeless_log(killed), timeless_log(tmp_path / "whole")
        # A checkpoint within an epoch holds the loss of all processes together, which rounds otherwise than their own.
        assert told == whole if members == 1 else told == [pytest.approx(entry, rel=1e-6) for entry in whole]
        assert not list(killed.rglob(".*"))  # what was half written is gone
