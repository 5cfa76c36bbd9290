"""A run that was stopped, anywhere and anyhow, ends with the same bits as one that was not."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from arrn.data import Batch
from arrn.errors import ArrnError, RunError
from arrn.runs import Machine, RunSettings, run_training
from arrn.training import TrainingStep
from small_runs import TINY, timeless_log, tiny_settings, train_tiny, weights, write_easy_set

EPOCHS, PER_EPOCH = 3, 5


class Died(BaseException):
    """As if the process had been killed."""


@contextmanager
def after_steps(count: int, do: Callable[[], object]) -> Iterator[None]:
    """Does something at the end of the step with that number, counted from 1 within the process."""
    taken = 0
    whole = TrainingStep.__call__

    def counted(self: TrainingStep, batch: Batch, number: int) -> None:
        nonlocal taken
        whole(self, batch, number)
        taken += 1
        if taken == count:
            do()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TrainingStep, "__call__", counted)
        yield


def die() -> None:
    raise Died


RECIPES: dict[str, dict[str, Any]] = {
    "adamw": {"epochs": EPOCHS},
    "sgd": {"epochs": EPOCHS, "optimizer": "sgd", "learning_rate": 0.05},
    "sgd without momentum": {"epochs": EPOCHS, "optimizer": "sgd", "momentum": 0.0, "learning_rate": 0.05},
    "random resolutions": {"epochs": EPOCHS, "resolutions": [8, 5, 4], "trivial_augment": True},
    "averaged": {
        "epochs": EPOCHS,
        "optimizer": "sgd",
        "nesterov": True,
        "learning_rate": 0.05,
        "warm_up": 1.5,
        "weight_averaging": 0.9,
        "label_smoothing": 0.1,
        "cutout": 0.4,
        "shares": {8: 0.5, 4: 0.5},
        "final_shares": {8: 0.75, 4: 0.25},
    },
}


@pytest.fixture(scope="module")
def uninterrupted(easy: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        name: train_tiny(easy, tmp_path_factory.mktemp("whole") / "run", **recipe) for name, recipe in RECIPES.items()
    }


def assert_same_end(out: Path, reference: Path) -> None:
    assert weights(out) == weights(reference)
    assert timeless_log(out) == timeless_log(reference)
    assert (out / "config.json").read_bytes() == (reference / "config.json").read_bytes()


def names(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "checkpoints").iterdir())


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("steps", [PER_EPOCH, 2 * PER_EPOCH + 3])
def test_killed_after_a_checkpoint_between_epochs(
    easy: Path, tmp_path: Path, uninterrupted: dict[str, Path], name: str, steps: int
) -> None:
    out = tmp_path / "run"
    with after_steps(steps + 1, die), pytest.raises(Died):
        train_tiny(easy, out, **RECIPES[name])
    assert names(out)[-1] == f"checkpoint-{steps // PER_EPOCH:04}.safetensors"
    train_tiny(easy, out, resume=True, **RECIPES[name])
    assert_same_end(out, uninterrupted[name])


@pytest.mark.parametrize("name", RECIPES)
def test_killed_after_a_checkpoint_within_an_epoch(
    easy: Path, tmp_path: Path, uninterrupted: dict[str, Path], name: str
) -> None:
    out = tmp_path / "run"
    with after_steps(9, die), pytest.raises(Died):
        train_tiny(easy, out, checkpoint_every=0.4, **RECIPES[name])
    assert names(out) == ["checkpoint-0001-000001.safetensors", "checkpoint-0001-000003.safetensors"]
    train_tiny(easy, out, resume=True, checkpoint_every=0.4, **RECIPES[name])
    assert_same_end(out, uninterrupted[name])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("steps", "where"), [(8, "epoch 2, step 3 of 5"), (5, "the end of epoch 1")])
def test_stopped_by_a_signal_it_writes_a_checkpoint_where_it_is(
    easy: Path, tmp_path: Path, uninterrupted: dict[str, Path], number: signal.Signals, steps: int, where: str
) -> None:
    out = tmp_path / "run"
    stopped = pytest.raises(RunError, match=f"stopped by {number.name} at {where}; a checkpoint is written: .*--resume")
    with after_steps(steps, lambda: signal.raise_signal(number)), stopped:
        train_tiny(easy, out, checkpoint_every=10, **RECIPES["adamw"])
    inside = f"-{steps % PER_EPOCH:06}" if steps % PER_EPOCH else ""
    assert names(out) == [f"checkpoint-{steps // PER_EPOCH:04}{inside}.safetensors"]
    assert len(timeless_log(out)) == steps // PER_EPOCH
    train_tiny(easy, out, resume=True, **RECIPES["adamw"])
    assert_same_end(out, uninterrupted["adamw"])


def test_a_signal_in_the_last_step_comes_too_late(easy: Path, tmp_path: Path, uninterrupted: dict[str, Path]) -> None:
    out = tmp_path / "run"
    with after_steps(EPOCHS * PER_EPOCH, lambda: signal.raise_signal(signal.SIGTERM)):
        train_tiny(easy, out, **RECIPES["adamw"])
    assert_same_end(out, uninterrupted["adamw"])


def test_a_signal_while_an_epoch_is_written_down_claims_no_checkpoint_that_is_not_there(
    easy: Path, tmp_path: Path, uninterrupted: dict[str, Path]
) -> None:
    class Late:
        """Interrupts after the loop has looked for a signal for the first time after the epoch."""

        def __init__(self) -> None:
            self.looks = 0

        @property
        def signal(self) -> str | None:
            self.looks += 1
            return "SIGINT" if self.looks > PER_EPOCH else None

    @contextmanager
    def late() -> Iterator[Late]:
        yield Late()

    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("arrn.runs.training.stop_on_signals", late)
        with pytest.raises(RunError, match="a checkpoint is written"):
            train_tiny(easy, out, checkpoint_every=10, **RECIPES["adamw"])
    assert len(names(out)) == 1
    train_tiny(easy, out, resume=True, **RECIPES["adamw"])
    assert_same_end(out, uninterrupted["adamw"])


def test_streaming_and_memory_and_going_from_one_to_the_other_end_alike(
    easy: Path, tmp_path: Path, uninterrupted: dict[str, Path]
) -> None:
    out, settings = tmp_path / "run", tiny_settings(easy, **RECIPES["adamw"])
    with after_steps(8, die), pytest.raises(Died):
        run_training(settings, out, Machine("cpu", stream=True, workers=0))
    run_training(settings, out, Machine("cpu", stream=False), resume=True)
    assert_same_end(out, uninterrupted["adamw"])


def test_a_damaged_last_checkpoint_costs_the_work_since_the_one_before(
    easy: Path, tmp_path: Path, uninterrupted: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "run"
    with after_steps(13, die), pytest.raises(Died):
        train_tiny(easy, out, **RECIPES["adamw"])
    (out / "checkpoints" / "checkpoint-0002.safetensors").write_bytes(b"not what it was")
    train_tiny(easy, out, resume=True, **RECIPES["adamw"])
    assert "going back to checkpoint-0001.safetensors" in caplog.text
    assert_same_end(out, uninterrupted["adamw"])


def test_killed_between_training_and_saving(easy: Path, tmp_path: Path, uninterrupted: dict[str, Path]) -> None:
    out = tmp_path / "run"
    train_tiny(easy, out, **RECIPES["adamw"])
    (out / "config.json").unlink()  # the weights are written first
    (out / "model.safetensors").write_bytes(b"half")
    train_tiny(easy, out, resume=True, **RECIPES["adamw"])
    assert_same_end(out, uninterrupted["adamw"])


def test_going_on_with_a_changed_training_set_is_refused(tmp_path: Path) -> None:
    data, out = write_easy_set(tmp_path / "data"), tmp_path / "run"
    with after_steps(8, die), pytest.raises(Died):
        train_tiny(data, out, **RECIPES["adamw"])
    write_easy_set(data, train=21)
    with pytest.raises(ArrnError, match=r"is not the one that the run .* it had 18 samples and now has 21"):
        train_tiny(data, out, resume=True, **RECIPES["adamw"])
    told = json.loads((out / "run.json").read_text())
    del told["trained_on"]  # as in runs from before it was written down
    (out / "run.json").write_text(json.dumps(told))
    with pytest.raises(
        ArrnError, match=r"the training set has changed since checkpoint-0001.* had \[18\].* has \[21\]"
    ):
        train_tiny(data, out, resume=True, **RECIPES["adamw"])


def test_a_checkpoint_of_another_network_is_refused(easy: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    other = RunSettings(str(easy), "arrn", TINY | {"features": [4, 6]}, tiny_settings(easy, **RECIPES["adamw"]).recipe)
    with after_steps(6, die), pytest.raises(Died):
        run_training(other, tmp_path / "other", Machine("cpu", checkpoint_every=1))
    with after_steps(6, die), pytest.raises(Died):
        train_tiny(easy, out, **RECIPES["adamw"])
    name = "checkpoint-0001.safetensors"
    (out / "checkpoints" / name).write_bytes((tmp_path / "other" / "checkpoints" / name).read_bytes())
    with pytest.raises(ArrnError, match="the checkpoint does not belong to this network"):
        train_tiny(easy, out, resume=True, **RECIPES["adamw"])


def test_seeds_decide_everything(easy: Path, tmp_path: Path, uninterrupted: dict[str, Path]) -> None:
    again = train_tiny(easy, tmp_path / "again", **RECIPES["adamw"])
    assert_same_end(again, uninterrupted["adamw"])
    settings = RunSettings(str(easy), "arrn", TINY, tiny_settings(easy, **RECIPES["adamw"]).recipe, seed=1)
    run_training(settings, tmp_path / "other", Machine("cpu"))
    assert weights(tmp_path / "other") != weights(again)
