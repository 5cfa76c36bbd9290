"""A real client under load: every request gets its answer, every answer is right, the memory stays flat."""

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from arrn.benchmarks.load import LoadReport, LoadSample, drive
from arrn.benchmarks.serving import load_samples
from commands import program
from pictures import encoded
from servers import Brightness, serving

ROOT = Path(__file__).parents[2]


def check(report: LoadReport) -> None:
    assert (report.wrong, report.lost) == (0, 0), report.words
    assert report.answers + report.refusals >= report.requests
    assert min(report.answers, report.refusals, report.cut_off) > 0
    assert max(report.batches) > 1


def test_no_answer_is_wrong_and_no_request_lost() -> None:
    network = Brightness()

    def right(content: bytes) -> Sequence[float]:
        found = network.read(content)
        return network.probabilities(network.level_of(found.size), found.samples)

    samples = load_samples(40, right, most=200, corrupt=10)
    with serving(network, receive_seconds=3) as running:
        address = ("127.0.0.1", running.port)
        report = asyncio.run(drive(address, samples, requests=12, connections=16, slow=1, forms=0.2, watch=True))
        assert running.answering.held.now == running.answering.waiting == 0
        assert running.answering.batcher.held == 0
    check(report)
    assert report.requests == 15 * 12 + 1
    assert len(report.memory) >= 1


def test_the_load_notices_wrong_answers_and_lost_requests() -> None:
    good = encoded(np.full((8, 8, 3), 250, np.uint8))
    samples = [LoadSample(good, (0.9, 0.05, 0.05)), LoadSample(good, None), LoadSample(b"none", (1.0, 0.0, 0.0))]
    with serving(Brightness()) as running:
        report = asyncio.run(drive(("127.0.0.1", running.port), samples, requests=20, connections=2))
    assert report.wrong > 0
    assert report.lost > 0
    assert report.answers == report.refusals == 0
    assert any(words.startswith("wrong: ") for words in report.words)
    assert "0 right answers" in report.summary()


@pytest.mark.slow
def test_two_minutes_of_32_connections_against_the_program(tmp_path: Path) -> None:
    """`arrn benchmark load` ends with an error where an answer is wrong or lost, or a server does not stop well."""
    numbers, seconds = tmp_path / "load.json", os.environ.get("ARRN_LOAD_SECONDS", "120")
    network = ROOT / "weights" / "arrn_small"
    program("benchmark", "load", "--network", network, "--device", "cpu", "--seconds", seconds, "--json", numbers)
    mixed = json.loads(numbers.read_text())["measurements"][0]["facts"]
    assert (mixed["wrong"], mixed["lost"]) == (0, 0)
    assert min(mixed["answers"], mixed["refusals"], mixed["cut_off"]) > 0
    assert mixed["memory_after"] < 1.1 * mixed["memory_settled"] + 20e6
