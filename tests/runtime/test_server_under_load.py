"""A real client under load: every request gets its answer, every answer is right, the memory stays flat."""

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from arrn.benchmarks.load import LoadReport, LoadSample, drive
from pictures import encoded, picture
from servers import Brightness, serving

ROOT = Path(__file__).parents[2]


def mixed_samples(count: int, right: Callable[[bytes], Sequence[float]], most: int = 512) -> list[LoadSample]:
    """Pictures from 4 px to `most` of all shapes, as PNG and JPEG; every tenth is corrupt."""
    rng = random.Random(0)
    samples = []
    for number in range(count):
        height, width = (round(4 * (most / 4) ** rng.random()) for _ in range(2))
        kind = ("PNG", "JPEG")[number % 2]
        content = encoded(picture(height, width, number), kind)
        if number % 10 == 9:
            broken = content[: len(content) // 2] if number % 20 == 9 else b"\x00" + content[1:]
            samples.append(LoadSample(broken, None))
        else:
            samples.append(LoadSample(content, right(content), f"image/{kind.lower()}"))
    return samples


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

    samples = mixed_samples(40, right, most=200)
    with serving(network, receive_seconds=0.8) as running:
        address = ("127.0.0.1", running.port)
        report = asyncio.run(drive(address, samples, seconds=2, connections=16, slow=2, forms=0.2, watch=True))
        assert running.answering.held.now == running.answering.waiting == 0
        assert running.answering.batcher.held == 0
    check(report)
    assert report.requests > 50
    assert len(report.memory) >= 2


def test_the_load_notices_wrong_answers_and_lost_requests() -> None:
    good = encoded(np.full((8, 8, 3), 250, np.uint8))
    samples = [LoadSample(good, (0.9, 0.05, 0.05)), LoadSample(good, None), LoadSample(b"none", (1.0, 0.0, 0.0))]
    with serving(Brightness()) as running:
        report = asyncio.run(drive(("127.0.0.1", running.port), samples, seconds=0.5, connections=2))
    assert report.wrong > 0
    assert report.lost > 0
    assert report.answers == report.refusals == 0
    assert any(words.startswith("wrong: ") for words in report.words)
    assert "0 right answers" in report.summary()


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [float(os.environ.get("ARRN_LOAD_SECONDS", "120"))])
def test_two_minutes_of_32_connections_against_the_program(seconds: float, tmp_path: Path) -> None:
    """Pictures of 4 to 512 px; run with `-s` to see the counts."""
    import arrn

    folder = ROOT / "weights" / "arrn_small"
    predictor = arrn.Predictor(folder, device="cpu")
    classes = len(predictor.class_names or ())

    def right(content: bytes) -> Sequence[float]:
        probabilities = dict(predictor(content, top=classes).top)
        return [probabilities[name] for name in predictor.class_names or ()]

    samples = mixed_samples(200, right)
    command = [sys.executable, "-m", "arrn", "serve", str(folder), "--port", "0", "--device", "cpu", "--receive", "3s"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as server:
        line = next(line for line in server.stdout if "serving on" in line)
        address = ("127.0.0.1", int(re.search(r":(\d+) ", line)[1]))
        report = asyncio.run(drive(address, samples, seconds=seconds, connections=32, slow=3, forms=0.1, watch=True))
        print(report.summary())  # noqa: T201 - what `-s` is for
        server.send_signal(signal.SIGTERM)
        rest = server.communicate(timeout=60)[0]
    assert server.returncode == 0, rest
    assert "Traceback" not in rest
    check(report)
    settled, after = report.memory[len(report.memory) // 4], max(report.memory[-5:])
    assert after < 1.1 * settled + 20e6, report.memory
