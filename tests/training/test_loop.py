"""What the loop counts, and how it goes on counting after an interruption."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from arrn.data import Batch, Bucket, MemoryBatches
from arrn.errors import ArrnError
from arrn.teamwork import Team
from arrn.training import Checkpoint, Checkpoints, Log, StopRequest, TrainingStep, resume_from, train

SAMPLES, BATCH, SECONDS = 40, 10, 2.0  # four steps, of two seconds each


class Died(BaseException):
    """As if the process had been killed."""


class Leader(Team):
    """One of two processes that agree without a word."""

    def most(self, number: int) -> int:
        return number


class CountingStep:
    """A step that does nothing but count, and take its time."""

    now = 0.0  # what the clock says

    def __init__(self, team: Team, dies_in: int | None) -> None:
        self.model = self.result = nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.team = team
        self.steps, self.dies_in = 0, dies_in
        self.carried = self.seen = 0

    def __call__(self, batch: Batch, number: int) -> None:
        self.steps += 1
        CountingStep.now += SECONDS
        if self.steps == self.dies_in:
            raise Died
        self.seen += len(batch.labels) // self.team.size

    @property
    def totals(self) -> tuple[float, int, int]:
        return 1.0, 0, self.carried + self.seen

    @property
    def team_totals(self) -> tuple[float, int, int]:
        """The others have seen as many, but carry nothing: the leader does that for all."""
        return 1.0, 0, self.carried + self.seen * self.team.size

    def reset(self, loss: float = 0.0, correct: int = 0, seen: int = 0) -> None:
        self.carried, self.seen = seen, 0


class Listener:
    """Hears how fast it goes."""

    def __init__(self) -> None:
        self.rates: list[float] = []

    def samples_seen(self, what: str, done: int, total: int) -> None: ...

    def epoch_begins(self, epoch: int, epochs: int, steps: int, first: int) -> None: ...

    def step_done(self, step: int, loss: float, accuracy: float, examples_per_second: float) -> None:
        self.rates.append(examples_per_second)

    def epoch_ends(self, entry: Mapping[str, Any]) -> None:
        self.rates.append(entry["examples_per_second"])


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arrn.training.loop.time", SimpleNamespace(monotonic=lambda: CountingStep.now))


def run(folder: Path, team: Team, start: Checkpoint | None = None, dies_in: int | None = None) -> Listener:
    """Trains two epochs, or goes on with them; a checkpoint after each step."""
    step, listener = cast(TrainingStep, CountingStep(team, dies_in)), Listener()
    bucket = Bucket(torch.zeros(SAMPLES, 3, 4, 4, dtype=torch.uint8), torch.zeros(SAMPLES, dtype=torch.int64))
    if start is not None:
        resume_from(step, start)
    with Log(folder / "log.jsonl", start.epoch if start else 0) as log:
        checkpoints, stop = Checkpoints(folder / "checkpoints"), StopRequest()
        batches = MemoryBatches([bucket], BATCH, 0)
        train(
            step,
            batches,
            2,
            checkpoints=checkpoints,
            log=log,
            stop=stop,
            start=start,
            checkpoint_every=0.25,
            watcher=listener,
        )
    return listener


def latest(folder: Path) -> Checkpoint:
    found = Checkpoints(folder / "checkpoints").read_latest()
    assert found is not None
    return found


def seconds(folder: Path) -> list[float]:
    return [json.loads(line)["seconds"] for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("team", [Team(), Leader(0, 2)])
def test_an_interrupted_epoch_takes_the_seconds_of_all_its_parts(tmp_path: Path, team: Team) -> None:
    with pytest.raises(Died):
        run(tmp_path, team, dies_in=2)
    assert latest(tmp_path).facts["seconds"] == SECONDS
    with pytest.raises(Died):
        run(tmp_path, team, latest(tmp_path), dies_in=3)
    assert latest(tmp_path).facts["seconds"] == 3 * SECONDS
    listener = run(tmp_path, team, latest(tmp_path))
    assert seconds(tmp_path) == [4 * SECONDS, 4 * SECONDS]
    assert (latest(tmp_path).epoch, latest(tmp_path).facts["seconds"]) == (2, 0)
    assert set(listener.rates) == {BATCH / SECONDS}  # of all processes, from the first step after the interruption on


@pytest.mark.parametrize("team", [Team(), Leader(0, 2)])
def test_of_a_checkpoint_from_before_seconds_were_kept_it_counts_those_since(tmp_path: Path, team: Team) -> None:
    with pytest.raises(Died):
        run(tmp_path, team, dies_in=4)
    facts = {name: fact for name, fact in latest(tmp_path).facts.items() if name != "seconds"}
    listener = run(tmp_path, team, dataclasses.replace(latest(tmp_path), facts=facts))
    assert seconds(tmp_path) == [SECONDS, 4 * SECONDS]
    assert set(listener.rates) == {BATCH / SECONDS}


@pytest.mark.parametrize("told", [-1, "long", None, float("inf")])
def test_seconds_that_are_none_are_refused(tmp_path: Path, told: object) -> None:
    with pytest.raises(Died):
        run(tmp_path, Team(), dies_in=2)
    start = dataclasses.replace(latest(tmp_path), facts={**latest(tmp_path).facts, "seconds": told})
    with pytest.raises(ArrnError, match=r"checkpoint-0000-000001.* does not tell how long its epoch took: seconds are"):
        run(tmp_path, Team(), start)
