"""`arrn benchmark load`: what is measured, told and refused; never the times."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import arrn
from arrn.benchmarks import serving as subject
from arrn.metadata import Metadata
from commands import Command
from saved_networks import small
from servers import Brightness, serving


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "network"
    model = small()
    model.metadata = Metadata((0.5,) * 3, (0.25,) * 3, class_names=("cat", "dog", "bird"))
    arrn.save(model, folder)
    return folder


def test_the_numbers_are_of_each_way_and_each_range_of_sizes(
    arrn_command: Command, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: list[tuple[str, ...]] = []

    @contextlib.contextmanager
    def within(folder: Path, *given: str) -> Iterator[tuple[str, int]]:
        """The server in a thread of this process, which starts at once."""
        options.append(given)
        batch = {"batch": 1, "delay": 0.0} if "--batch" in given else {}
        with serving(arrn.Predictor(folder, device="cpu"), **batch) as running:
            yield "127.0.0.1", running.port

    monkeypatch.setattr(subject, "serving_program", within)
    monkeypatch.setattr(subject, "_SLOW", 0)  # whom nothing cuts off for 20 seconds
    numbers = tmp_path / "load.json"
    out = arrn_command(
        "benchmark", "load", "--network", saved, "--seconds", 1, "--quick", "--device", "cpu", "--json", numbers
    ).out
    assert options == [
        ("--device", "cpu", "--receive", "3s"),
        ("--device", "cpu", "--batch", "1", "--delay", "0"),
        ("--device", "cpu"),
    ]
    measured = json.loads(numbers.read_text())["measurements"]
    assert [(entry["case"][:11], entry["way"]) for entry in measured] == [
        ("4 to 512 px", "by level"),
        *((case, way) for case in ("4 to 5 px", "256 to 512 ", "4 to 512 px") for way in ("one at a time", "by level")),
    ]
    assert measured[0]["facts"]["refusals"] > 0
    assert measured[0]["facts"]["memory_after"] > 0
    for entry in measured:
        facts = entry["facts"]
        assert (facts["wrong"], facts["lost"]) == (0, 0)
        assert facts["answers"] > 0
        assert facts["answers_a_second"] == pytest.approx(1 / entry["seconds"])
        assert facts["together"] == 1 if entry["way"] == "one at a time" else facts["together"] > 1
    again = arrn_command("benchmark", "--load", numbers).out
    assert all(line in again for line in out.splitlines() if "│" in line)


def test_wrong_answers_end_it(arrn_command: Command, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def another_network(folder: Path, *given: str) -> Iterator[tuple[str, int]]:
        with serving(Brightness()) as running:
            yield "127.0.0.1", running.port

    monkeypatch.setattr(subject, "serving_program", another_network)
    monkeypatch.setattr(subject, "_SLOW", 0)
    err = arrn_command(
        "benchmark", "load", "--network", saved, "--seconds", 1, "--quick", "--device", "cpu", code=1
    ).err
    assert "answers were wrong" in err


def test_what_cannot_be_measured_is_told(arrn_command: Command, tmp_path: Path) -> None:
    assert "give --network FOLDER" in arrn_command("benchmark", "load", code=2).err
    assert "--seconds must be 1 to 86,400, got 0" in arrn_command("benchmark", "load", "--seconds", 0, code=2).err
    missing = arrn_command("benchmark", "load", "--network", tmp_path / "none", code=2).err
    assert "none is not a directory" in missing
