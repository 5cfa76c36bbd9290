"""Runs on streamed shards: stopped in the middle of an epoch and resumed, they end with the bits of one left alone."""

import dataclasses
import json
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from arrn.data import BadSample, Windows
from arrn.errors import ArrnError, RunError
from arrn.runs import Machine, RunSettings, run_training
from arrn.runs.splits import begun_in_order
from arrn.training import Watcher
from shards import write_shards
from small_runs import said_by, timeless_log, tiny_settings, weights

COUNTS = (17, 9, 12, 10)
STREAMED = Machine("cpu", stream=True, workers=0, checkpoint_every=0.25)


@pytest.fixture(params=["parquet", "tar"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Shards that do not fit in one window."""
    monkeypatch.setattr("arrn.data.tars._CHUNK_BYTES", 3000)
    within = Windows.within
    monkeypatch.setattr(
        Windows, "within", lambda lengths, weights, memory, processes: within(lengths, weights, sum(weights) // 2)
    )
    return write_shards(tmp_path / "set", request.param, COUNTS)


class Stopping(Watcher):
    """Sends a signal after a step, as a user would."""

    def __init__(self, step: int) -> None:
        self.step = step

    def samples_seen(self, what: str, done: int, total: int) -> None: ...

    def epoch_begins(self, epoch: int, epochs: int, steps: int, first: int) -> None: ...

    def step_done(self, step: int, loss: float, accuracy: float, examples_per_second: float) -> None:
        if step == self.step:
            signal.raise_signal(signal.SIGTERM)

    def epoch_ends(self, entry: Mapping[str, Any]) -> None: ...


def start_and_stop(settings: RunSettings, out: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves a run that was stopped after its fifth step."""
    with monkeypatch.context() as patch:
        patch.setattr("arrn.training.loop._SECONDS_BETWEEN_LOOKS", -1.0)
        with pytest.raises(RunError, match=r"stopped by SIGTERM at epoch 1, step"):
            run_training(settings, out, machine, watcher=Stopping(5))


def order_of(out: Path) -> Any:
    return json.loads((out / "run.json").read_text())["order"]


def test_a_run_that_is_stopped_in_an_epoch_ends_with_the_same_bits(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tiny_settings(root)
    run_training(settings, tmp_path / "whole", STREAMED)
    order = order_of(tmp_path / "whole")
    assert order["window"] > 0
    start_and_stop(settings, tmp_path / "again", STREAMED, monkeypatch)
    # What decides the order is kept, whatever the machine that goes on has.
    monkeypatch.setattr(Windows, "within", lambda *_: pytest.fail("the order was decided anew"))
    for number, machine in enumerate([STREAMED, dataclasses.replace(STREAMED, stream=False, shuffle_memory=1)]):
        shutil.copytree(tmp_path / "again", tmp_path / f"run-{number}")
        run_training(settings, tmp_path / f"run-{number}", machine, resume=True)
        assert weights(tmp_path / f"run-{number}") == weights(tmp_path / "whole")
        assert timeless_log(tmp_path / f"run-{number}") == timeless_log(tmp_path / "whole")
        assert order_of(tmp_path / f"run-{number}") == order


def test_a_run_that_began_in_memory_goes_on_streamed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tiny_settings(root)
    run_training(settings, tmp_path / "whole", Machine("cpu", stream=False))
    assert order_of(tmp_path / "whole") == "whole"
    start_and_stop(settings, tmp_path / "again", Machine("cpu", stream=False), monkeypatch)
    run_training(settings, tmp_path / "again", STREAMED, resume=True)
    assert weights(tmp_path / "again") == weights(tmp_path / "whole")


def test_a_bad_sample_is_named_with_its_shard_and_skipped_and_counted(tmp_path: Path) -> None:
    root = write_shards(tmp_path / "set", "tar", COUNTS)
    shard = root / "train-0001.tar"
    content = bytearray(shard.read_bytes())
    place = content.index(b"IDAT", content.index(b"000020.png"))
    content[place + 6 : place + 10] = b"\xff\xff\xff\xff"
    shard.write_bytes(content)
    settings = dataclasses.replace(tiny_settings(root), skip_bad=True)
    said = said_by(settings, tmp_path / "run", STREAMED)
    assert any("skipped 1 bad sample:" in line and "train-0001.tar sample 000020" in line for line in said)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["skipped"] == 1
    with pytest.raises(BadSample, match=r"train-0001\.tar sample 000020: "):
        run_training(tiny_settings(root), tmp_path / "strict", STREAMED)


@pytest.mark.parametrize(
    "order",
    [{"lanes": 0, "window": 1}, {"lanes": 1}, {"lanes": 1, "window": 1.5}, "windows", {"lanes": 10**9, "window": 1}],
)
def test_an_order_that_means_nothing_is_refused(order: object, tmp_path: Path, easy: Path) -> None:
    from small_runs import train_tiny

    train_tiny(easy, tmp_path / "run")
    document = json.loads((tmp_path / "run" / "run.json").read_text())
    assert begun_in_order(tmp_path / "run", begun=True) == "whole"
    (tmp_path / "run" / "run.json").write_text(json.dumps(document | {"order": order}))
    with pytest.raises(ArrnError, match=r"run\.json: (order|lanes|window) should "):
        begun_in_order(tmp_path / "run", begun=True)
    assert begun_in_order(tmp_path / "run", begun=False) is None
