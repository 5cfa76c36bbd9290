"""Runs in real processes that are killed with SIGKILL at random moments, and what each of their steps was given."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# Torch is loaded once, with what it loads for a first network (its compiler, which takes seconds); each attempt is a
# team of forks of this process, in a process group of their own, which find each other as torchrun's do. One of them
# is killed, or all; when one is, torchrun asks the others to stop, and so does this. A run that comes to its end
# before it was killed often enough is followed by another. CUDA is not touched before the forks.
LAUNCHER = r"""
import glob, json, os, random, signal, socket, sys, time
import PIL.PngImagePlugin, arrn.cli.app, arrn.data, arrn.provenance, arrn.runs
from arrn.cli import main
from arrn.models import create_model
from arrn.training import TrainingStep

create_model("arrn", sizes=[8, 4], features=[4, 8])
take_step = TrainingStep.__call__

def noting(step, batch, number):
    take_step(step, batch, number)
    pixels = batch.images[:, :2, 0, 0].tolist()
    with open(f"{sys.argv[-1]}.seen", "a") as file:
        file.write(json.dumps({"process": os.getpid(), "step": number, "pixels": pixels}) + "\n")

TrainingStep.__call__ = noting
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
            sys.argv = ["arrn", *command, *["--resume"] * begun, "--out", f"{folder}/{out}"]
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
    if kills < wanted:
        time.sleep(moments.uniform(ready / 2, ready + (took - ready) / 4))
    else:  # on a machine that has become busier since, none of those moments may be late enough
        while len(left(team)) == members and not glob.glob(f"{folder}/killed-{runs}/checkpoints/checkpoint-*"):
            time.sleep(0.002)
    for pid in moments.choice([team, *([pid] for pid in team)]):
        os.kill(pid, signal.SIGKILL)
    ended = end(team)
    # A process that is still starting dies of the SIGTERM that ends the others.
    assert set(ended) <= {0, 1, -signal.SIGKILL, -signal.SIGTERM}, ended
    kills += -signal.SIGKILL in ended
    left_over = glob.glob(f"{folder}/killed-{runs}/checkpoints/checkpoint-*")
    finished = os.path.exists(f"{folder}/killed-{runs}/model.safetensors")  # one of a team was killed after that
    begun = begun or (bool(left_over) and not finished)
    runs += set(ended) == {0}
assert set(codes(start(f"killed-{runs}"))) == {0}
print(f"{kills} kills", flush=True)
"""


@dataclass(frozen=True)
class Step:
    """A step that a process took.

    Attributes:
        process: its number.
        number: of the step, in the run.
        pixels: the red and the green of the first pixel of each image, in the order of the batch.
    """

    process: int
    number: int
    pixels: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Killed:
    """What is left of a run that was left alone, and of those that were killed again and again.

    Attributes:
        whole: the folder of the former.
        killed: those of the others, each of which came to its end at last.
        kills: how many processes, or teams of them, were killed.
        output: what all of them said.
    """

    whole: Path
    killed: tuple[Path, ...]
    kills: int
    output: str

    @staticmethod
    def steps(run: Path) -> list[Step]:
        """The steps of a run, one process after another, in the order in which they were taken."""
        lines = [json.loads(line) for line in Path(f"{run}.seen").read_text().splitlines()]
        return [Step(line["process"], line["step"], tuple(map(tuple, line["pixels"]))) for line in lines]


def kill_runs(folder: Path, command: list[str], kills: int, members: int = 1) -> Killed:
    """Carries out a run, and others that are killed at least so many times in all and resumed.

    Args:
        folder: of all runs.
        command: of `arrn`, without --out and --resume.
        kills: that come before the last run may end.
        members: the processes of a run.
    """
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, str(folder), str(kills), str(members), *command],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    killed = tuple(sorted(path for path in folder.glob("killed-*") if path.is_dir()))
    found = Killed(folder / "whole", killed, int(re.search(r"(\d+) kills", done.stdout)[1]), done.stdout)
    assert found.kills >= kills
    assert "going on from checkpoint-" in found.output, found.output
    return found
