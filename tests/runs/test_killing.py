"""Real processes, killed with SIGKILL at random moments, end with the bits of a run that was left alone."""

import json
import os
from itertools import groupby
from pathlib import Path

import pytest
import torch

from killing import Killed, kill_runs
from shards import write_shards
from small_runs import timeless_log, tiny_settings, weights, write_mixed_folder

GPUS = torch.cuda.device_count()
forking = pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes to fork")


@forking
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
    found = kill_runs(tmp_path, command, kills, members)
    for killed in found.killed:
        assert weights(killed) == weights(found.whole)
        told, whole = timeless_log(killed), timeless_log(found.whole)
        # A checkpoint within an epoch holds the loss of all processes together, which rounds otherwise than their own.
        assert told == whole if members == 1 else told == [pytest.approx(entry, rel=1e-6) for entry in whole]
        assert not list(killed.rglob(".*"))  # what was half written is gone


@forking
@pytest.mark.parametrize(
    ("kind", "workers", "kills"),
    [("parquet", 0, 3), *(pytest.param("tar", workers, 6, marks=pytest.mark.slow) for workers in (0, 1))],
)
def test_streamed_shards_go_on_with_the_samples_that_were_not_seen(
    kind: str, workers: int, kills: int, tmp_path: Path
) -> None:
    # More than one MiB, the least that --shuffle-memory takes.
    data = write_shards(tmp_path / "data", kind, (2000, 400, 1900, 1700), ((8, 8),), row_group_size=50)
    options = [f"{name}={value}".replace(" ", "") for name, value in tiny_settings(data).options.items()]
    command = ["train", str(data), "--model", "arrn", "--epochs", "3", "--batch-size", "64", "--device", "cpu"]
    command += ["--stream", "--workers", str(workers), "--shuffle-memory", "1", "--checkpoint-every", "0.1"]
    found = kill_runs(tmp_path, command + [word for option in options for word in ("--option", option)], kills)
    assert json.loads((found.whole / "run.json").read_text())["order"]["window"] > 0
    whole = {step.number: step.pixels for step in Killed.steps(found.whole)}
    per_epoch = len(whole) // 3
    for epoch in range(3):
        seen = [pixels for number in range(epoch * per_epoch, (epoch + 1) * per_epoch) for pixels in whole[number]]
        assert sorted(seen) == sorted(divmod(number, 256) for number in range(6000))
    for killed in found.killed:
        assert weights(killed) == weights(found.whole)
        assert timeless_log(killed) == timeless_log(found.whole)
        taken = Killed.steps(killed)
        # Each process goes on with the step after its checkpoint, and gives each step the samples of the whole run.
        assert all(step.pixels == whole[step.number] for step in taken)
        for _, steps in groupby(taken, key=lambda step: step.process):
            numbers = [step.number for step in steps]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
