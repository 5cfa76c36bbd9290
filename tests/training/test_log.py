"""The log: one line an epoch, taken back where a run goes back, whole after a crash."""

import builtins
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from arrn.errors import ArrnError, RunError
from arrn.training import Log, read_log


def entry(epoch: int) -> dict[str, Any]:
    return {"epoch": epoch, "loss": 1 / epoch, "accuracy": 0.5}


def test_entries_are_lines_of_json(tmp_path: Path) -> None:
    with Log(tmp_path / "log.jsonl") as log:
        log.write(entry(1))
        log.write(entry(2))
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [entry(1), entry(2)]


def test_a_log_is_there_from_the_start_and_entries_after_the_resumed_epoch_are_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with Log(path) as log:
        assert path.read_text() == ""
        for epoch in (1, 2, 3):
            log.write(entry(epoch))
    with Log(path, epochs=2) as log:
        assert [e["epoch"] for e in read_log(path)] == [1, 2]
        log.write(entry(3))
    assert [e["epoch"] for e in read_log(path)] == [1, 2, 3]


@pytest.mark.parametrize("rest", [b'{"epoch": 3, "lo', b"\xff\xfe\n", b"[1]\n", b'{"loss": 1}\n', b"[" * 9000])
def test_what_a_crash_left_at_the_end_is_dropped(tmp_path: Path, rest: bytes) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(json.dumps(entry(1)).encode() + b"\n" + json.dumps(entry(2)).encode() + b"\n" + rest)
    assert read_log(path) == [entry(1), entry(2)]
    with Log(path, epochs=2) as log:
        log.write(entry(3))
    assert read_log(path) == [entry(1), entry(2), entry(3)]


def test_a_log_that_cannot_be_written_stops_the_run_in_words(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").mkdir()
    with pytest.raises(RunError, match=r"cannot write .*log\.jsonl"):
        Log(tmp_path / "log.jsonl")
    with Log(tmp_path / "other.jsonl") as log:
        (tmp_path / "other.jsonl").unlink()
        (tmp_path / "other.jsonl").mkdir()
        with pytest.raises(RunError, match=r"cannot write .*other\.jsonl.*--resume"):
            log.write(entry(1))


def test_without_tensorboard_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any) -> Any:
        if name.startswith(("tensorboard", "torch.utils.tensorboard")):
            raise ModuleNotFoundError(name=name)
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ArrnError, match=r"pip install '\.\[tensorboard\]' in a clone"):
        Log(tmp_path / "log.jsonl", tensorboard=tmp_path / "board")


def test_tensorboard_gets_every_number_of_every_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    class Writer:
        def __init__(self, folder: str, purge_step: int) -> None:
            told.append((folder, purge_step))

        def add_scalar(self, name: str, value: float, epoch: int) -> None:
            told.append((name, value, epoch))

        def flush(self) -> None:
            told.append("flushed")

        def close(self) -> None:
            told.append("closed")

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setattr("torch.utils.tensorboard", module, raising=False)
    with Log(tmp_path / "log.jsonl", epochs=4, tensorboard=tmp_path / "board") as log:
        log.write(entry(5))
    assert told == [
        (str(tmp_path / "board"), 5),
        ("loss", 0.2, 5),
        ("accuracy", 0.5, 5),
        "flushed",
        "closed",
    ]
