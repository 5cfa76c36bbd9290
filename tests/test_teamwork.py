"""Several processes at one training: the same result as one, and an end that loses nothing."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import arrn
from arrn.data import Augmentation, Bucket, MemoryBatches, Normalisation
from arrn.errors import ArrnError
from arrn.runs import Machine
from arrn.runs.preparing import least_share, share_norms
from arrn.teamwork import Team, join_team
from arrn.training import Recipe, StopRequest, TrainingStep
from arrn.training.loop import CheckpointSchedule, Decider
from arrn.training.step import may_leave_out
from small_runs import TINY, weights

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


class Plain(nn.Module):
    """A network in float64 whose norm does not look at the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 3)
        ).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layers(x.double())
        return logits


def trained_weights(team: Team) -> torch.Tensor:
    """Two epochs over 22 samples in batches of 5 and 6, which two processes cannot share evenly."""
    torch.manual_seed(0)
    model = Plain()
    images = torch.randint(0, 256, (22, 3, 8, 8), dtype=torch.uint8)
    batches = MemoryBatches([Bucket(images, torch.arange(22) % 3)], batch_size=6, seed=1)
    batches.team = team
    recipe = Recipe(flip=False, crop_padding=0.0, learning_rate=1e-2, precision="float32")
    normalisation = Normalisation((0.5,) * 3, (0.25,) * 3)
    step = TrainingStep(model, Augmentation(normalisation, False, 0.0), recipe, 100, 0, team=team)
    number = 0
    for epoch in range(2):
        for batch in batches.epoch(epoch):
            step(batch, number)
            number += 1
    assert step.team_totals[2] == 44
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


if __name__ == "__main__":  # what the processes of the test below do
    with join_team(torch.device("cpu")) as joined:
        weights = trained_weights(joined)
        if joined.leads:
            sys.stdout.write(json.dumps(weights.tolist()))
    sys.exit()


def test_two_processes_end_with_the_weights_of_one() -> None:
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([*TORCHRUN, __file__], capture_output=True, text=True, env=ENVIRONMENT | path, check=False)
    assert done.returncode == 0, done.stderr
    torch.testing.assert_close(
        torch.tensor(json.loads(done.stdout), dtype=torch.float64), trained_weights(Team()), rtol=0, atol=1e-8
    )


def train_command(easy: Path, out: Path, *options: str) -> list[str]:
    tiny = [word for name, value in TINY.items() for word in ("--option", f"{name}={json.dumps(value)}")]
    run = ["-m", "arrn", "train", str(easy), "--model", "arrn", "--out", str(out), "--device", "cpu", *tiny]
    return [*TORCHRUN, *run, "--batch-size", "6", "--checkpoint-every", "1", *options]


def test_a_process_that_dies_ends_the_job_and_the_run_goes_on_later(easy: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    epochs = 120  # more than it comes to before it is killed
    command = train_command(easy, out, "--epochs", str(epochs))
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT, start_new_session=True
    ) as job:
        try:
            _wait_for(lambda: len(list((out / "checkpoints").glob("*"))) == 2, job)
            os.kill(_process_of_rank(1, job.pid), signal.SIGKILL)
            said, _ = job.communicate(timeout=240)
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
    assert job.returncode != 0
    assert re.search(r"arrn: process 0 of 2 lost the others .* --resume|stopped by SIGTERM .* --resume", said), said
    assert not (out / "model.safetensors").exists()
    again = train_command(easy, out, "--resume")
    done = subprocess.run(again, capture_output=True, text=True, env=ENVIRONMENT, check=False, timeout=400)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("going on from checkpoint-") == 1  # the leader speaks for all
    log = (out / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in log] == [*range(1, epochs + 1)]
    evaluated = [*TORCHRUN, "-m", "arrn", "evaluate", str(out), "--device", "cpu", "--batch-size", "2"]
    subprocess.run(evaluated, capture_output=True, env=ENVIRONMENT, check=True)
    report = json.loads((out / "evaluation.json").read_text())
    assert {result["total"] for result in report["results"]} == {9}  # five batches shared by two: none twice


@pytest.mark.slow
def test_killed_under_torchrun_a_run_ends_with_the_weights_of_one_that_was_left_alone(
    easy: Path, tmp_path: Path
) -> None:
    """One process is killed, or all of them with torchrun itself, as a machine that loses its power does."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run(train_command(easy, whole, "--epochs", "60"), capture_output=True, env=ENVIRONMENT, check=True)
    moments, kills = random.Random(5), 0
    for victims in ("one", "all", "leader", "all", "one", "leader"):
        begun = (killed / "run.json").exists()
        command = train_command(easy, killed, *(["--resume"] if begun else ["--epochs", "60"]))
        before = set((killed / "checkpoints").glob("*"))
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT
        ) as job:
            _wait_for(lambda seen=before: set((killed / "checkpoints").glob("*")) - seen, job)
            time.sleep(moments.uniform(0, 0.5))
            pids = {"leader": [0], "one": [1], "all": [0, 1]}[victims]
            try:
                for pid in [*([job.pid] if victims == "all" else []), *(_process_of_rank(n, job.pid) for n in pids)]:
                    os.kill(pid, signal.SIGKILL)
            except AssertionError:  # it has come to its end
                break
            job.communicate(timeout=240)
            assert job.returncode != 0
            kills += 1
    done = subprocess.run(train_command(easy, killed, "--resume"), capture_output=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    assert kills >= 3
    assert weights(killed) == weights(whole)


def _wait_for(there: object, job: subprocess.Popen[str]) -> None:
    assert callable(there)
    deadline = time.monotonic() + 240  # a guard against hanging, not a measurement
    while not there():
        assert job.poll() is None, job.stdout and job.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _process_of_rank(rank: int, parent: int) -> int:
    for folder in Path("/proc").iterdir():
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            status = (folder / "status").read_text()
        except OSError:
            continue
        if f"RANK={rank}".encode() in environment and f"PPid:\t{parent}\n" in status:
            return int(folder.name)
    raise AssertionError(f"no process of rank {rank}")


def test_shares_make_up_the_whole_without_padding() -> None:
    whole = torch.arange(11)
    shares = [Team(rank, 3).share(whole) for rank in range(3)]
    assert sorted(torch.cat(shares).tolist()) == whole.tolist()
    assert [len(share) for share in shares] == [4, 4, 3]


def test_a_process_by_itself_agrees_with_itself() -> None:
    team = Team()
    assert (team.leads, team.most(3), team.add_up([1.0])) == (True, 3, [1.0])
    assert team.gather(torch.tensor([1, 2])).tolist() == [1, 2]
    stop = StopRequest()
    decider = Decider(team, stop, CheckpointSchedule(4, 0.5))
    assert [decider.after(done).checkpoint for done in (1, 2, 3, 4)] == [False, True, False, True]
    stop.signal = "SIGTERM"
    assert decider.after(5) == (True, "SIGTERM")


def test_batches_too_small_for_all_are_refused() -> None:
    batches = MemoryBatches([Bucket(torch.zeros(9, 3, 8, 8, dtype=torch.uint8), torch.zeros(9).long())], 4, 0)
    assert least_share(batches, Team(0, 3)) == 1
    with pytest.raises(ArrnError, match="a batch of 3 samples cannot be shared by 4 processes"):
        least_share(batches, Team(0, 4))


def test_synchronised_norms_need_gpus() -> None:
    model, machine = nn.BatchNorm2d(3), Machine(sync_batch_norm=True)
    assert share_norms(model, machine, Team(), torch.device("cpu")) is model
    with pytest.raises(ArrnError, match="synchronised batch norms for GPUs only, and the device is cpu"):
        share_norms(model, machine, Team(0, 2), torch.device("cpu"))


@pytest.mark.parametrize(
    ("options", "share", "resolutions", "may"),
    [
        ({"dropout": 0.5}, 8, 0, False),
        ({"dropout": 0.5}, 8, 9, True),
        ({"dropout": 0.99}, 8, 0, True),
        ({"dropout": 0.99, "draw": "sample"}, 8, 0, False),
        ({"dropout": 0.5, "draw": "batch"}, 8, 0, True),
    ],
)
def test_who_may_have_nothing_to_do(options: dict[str, object], share: int, resolutions: int, may: bool) -> None:
    assert may_leave_out(arrn.create_model("arrn", **TINY, **options), share, resolutions) is may
