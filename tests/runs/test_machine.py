"""How a run is carried out: devices, compilation, processes that read."""

import math
import multiprocessing
import os
from functools import partial
from pathlib import Path

import pytest
import torch

import arrn
from arrn.errors import ArrnError, RunError
from arrn.runs import Machine, pick_device, run_training
from small_runs import tiny_settings, weights


def test_stopping_midway_leaves_no_worker_process(easy: Path, tmp_path: Path) -> None:
    before = set(multiprocessing.active_children())
    settings = tiny_settings(easy, learning_rate=1e30, optimizer="sgd", epochs=50)
    with pytest.raises(RunError, match="the loss became"):
        run_training(settings, tmp_path / "run", Machine("cpu", stream=True, workers=1, checkpoint_every=0.2))
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_checkpoints_come_at_a_positive_interval(value: float) -> None:
    with pytest.raises(ArrnError, match="epochs between checkpoints must be a number above 0"):
        Machine(checkpoint_every=value)


def test_workers_cannot_be_fewer_than_none() -> None:
    with pytest.raises(ArrnError, match="from 0 to 1000, got -1"):
        Machine(workers=-1)


def test_a_deterministic_run_is_the_same_run_on_a_cpu(easy: Path, tmp_path: Path, finished: Path) -> None:
    try:
        run_training(tiny_settings(easy), tmp_path / "run", Machine("cpu", deterministic=True))
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
        os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
    assert weights(tmp_path / "run") == weights(finished)


def test_devices_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    assert pick_device("auto") == pick_device("cpu") == torch.device("cpu")
    for name in ("cuda", "mps"):
        with pytest.raises(ArrnError, match=f"there is no {name} device here; --device auto"):
            pick_device(name)
    with pytest.raises(ArrnError, match="unknown device 'gpu'"):
        pick_device("gpu")
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
    assert pick_device("auto") == torch.device("mps")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert pick_device("auto") == torch.device("cuda")


def test_a_compiled_network_is_trained_and_saved_like_any(
    easy: Path, tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Traced only: inductor takes a minute.
    monkeypatch.setattr("torch.compile", partial(torch.compile, backend="eager"))
    run_training(tiny_settings(easy), tmp_path / "run", Machine("cpu", compiled=True))
    compiled, eager = (arrn.load(folder).state_dict() for folder in (tmp_path / "run", finished))
    torch.testing.assert_close(compiled, eager, rtol=1e-3, atol=1e-4)
