"""`arrn serve` under load: are all answers right, and how many come in a second, with batching by level and without."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from arrn.benchmarks.load import LoadReport, LoadSample, drive
from arrn.benchmarks.measurement import Fact, Measurement
from arrn.benchmarks.settings import BenchmarkSettings
from arrn.deploy import Predictor as TorchPredictor
from arrn.errors import ArrnError, RunError, needs
from arrn.runtime import OnnxPredictor, Predictor
from arrn.runtime.manifest import MANIFEST
from arrn.timing import Timing

SMALLEST, LARGEST = 4, 512
"""Pixels of the sides of the images that are sent."""

_CONNECTIONS, _SLOW, _FORMS, _CORRUPT = 32, 3, 0.1, 10
_ROUNDS = 3
_RECEIVE = "3s"  # what a slow sender has for a request
_STARTS_WITHIN, _STOPS_WITHIN = 120, 60  # seconds
_WAYS = {"one at a time": ("--batch", "1", "--delay", "0"), "by level": ()}
"""Each way's options of `arrn serve`; the first is what the others are compared with."""


@dataclass(frozen=True)
class _Sizes:
    """Images to send: the sides lie between two lengths."""

    words: str
    least: int
    most: int


def load_samples(
    count: int,
    right: Callable[[bytes], Sequence[float]],
    least: int = SMALLEST,
    most: int = LARGEST,
    corrupt: int = 0,
) -> list[LoadSample]:
    """Images of all shapes, as PNG and JPEG, in smooth colours with a little noise.

    Args:
        count: of the images.
        right: the probabilities that the network gives for a file when it is run directly.
        least, most: pixels of their sides, drawn evenly on a logarithmic scale.
        corrupt: every so manieth file is damaged, and is to be refused; 0 for none.
    """
    rng = random.Random(0)
    samples = []
    for number in range(count):
        height, width = (round(least * (most / least) ** rng.random()) for _ in range(2))
        kind = ("PNG", "JPEG")[number % 2]
        content = _encode(_picture(height, width, number), kind)
        if corrupt and number % corrupt == corrupt - 1:
            broken = content[: len(content) // 2] if number % (2 * corrupt) < corrupt else b"\x00" + content[1:]
            samples.append(LoadSample(broken, None))
        else:
            samples.append(LoadSample(content, right(content), f"image/{kind.lower()}"))
    return samples


def _picture(height: int, width: int, seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:height, 0:width] / max(height, width)
    waves = [
        128 + 90 * np.sin(3 * (rows + turn * columns) + phase) for turn, phase in enumerate(rng.uniform(0, 3, size=3))
    ]
    noisy = np.stack(waves, axis=-1) + rng.normal(0, 4, (height, width, 3))
    return noisy.clip(0, 255).astype(np.uint8)


def _encode(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], kind: str) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


@contextlib.contextmanager
def serving_program(folder: Path, *options: str) -> Iterator[tuple[str, int]]:
    """`arrn serve` as a process of its own, on a free port of this machine; stopped in the end.

    Args:
        folder: the network's.
        options: further options of the command.

    Yields:
        Host and port.

    Raises:
        RunError: where it does not start, or does not stop well.
    """
    command = [sys.executable, "-m", "arrn", "serve", str(folder), "--port", "0", *options]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, errors="replace"
    ) as server:
        assert server.stdout is not None
        killer = threading.Timer(_STARTS_WITHIN, server.kill)
        killer.start()
        said = []
        try:
            address = None
            for line in server.stdout:
                said.append(line)
                if (address := re.match(r"serving on http://([\d.]+):(\d+) ", line)) is not None:
                    break
            killer.cancel()
            if address is None:
                raise RunError(f"arrn serve did not start: {' '.join(''.join(said).split())[-500:]}")
            yield address[1], int(address[2])
            server.send_signal(signal.SIGTERM)
            rest = server.communicate(timeout=_STOPS_WITHIN)[0]
            if server.returncode != 0 or "Traceback" in rest:
                raise RunError(f"arrn serve ended with status {server.returncode}: {' '.join(rest.split())[-500:]}")
        finally:
            killer.cancel()
            server.kill()


def benchmark_serving(settings: BenchmarkSettings, say: Callable[[str], None]) -> list[Measurement]:
    """The load of many connections, corrupt files and slow senders; then rates, in ways that take turns.

    Args:
        settings: its `network` is what is served; `seconds` is how long the load lasts, and each rate takes a 24th.
        say: told what is measured now.

    Raises:
        ArrnError: without a network, and for one that takes no images.
        RunError: where a server does not start or stop, or an answer is wrong or lost.
    """
    with needs("fastapi and uvicorn", "arrn benchmark load", "serve"):
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    folder, seconds = settings.network, settings.seconds
    if folder is None:
        raise ArrnError("arrn benchmark load serves a saved network: give --network FOLDER")
    device = settings.device.type
    exported = (folder / MANIFEST).exists()
    predictor: Predictor = OnnxPredictor(folder) if exported else TorchPredictor(folder, device=device)
    if predictor.ndim != 2:
        raise ArrnError(f"{folder} takes a {predictor.kind}; arrn benchmark load sends images")
    options = ("--device", device)
    found = []
    say(f"{_CONNECTIONS} connections for {seconds:g} seconds")
    samples = load_samples(40 if settings.quick else 200, _right_by(predictor), corrupt=_CORRUPT)
    with serving_program(folder, *options, "--receive", _RECEIVE) as address:
        report = asyncio.run(
            drive(address, samples, seconds=seconds, connections=_CONNECTIONS, slow=_SLOW, forms=_FORMS, watch=True)
        )
    _check(report)
    case = f"{SMALLEST} to {LARGEST} px, corrupt files and slow senders among them"
    found.append(_measurement(case, "by level", [report], None))
    with contextlib.ExitStack() as servers:
        addresses = {
            way: servers.enter_context(serving_program(folder, *options, *more)) for way, more in _WAYS.items()
        }
        for sizes in _sizes(predictor):
            say(f"rates of {sizes.words}")
            samples = load_samples(12 if settings.quick else 40, _right_by(predictor), sizes.least, sizes.most)
            reports: dict[str, list[LoadReport]] = {way: [] for way in addresses}
            for number in range(_ROUNDS):
                for way, address in addresses.items():
                    load = drive(address, samples, seconds=seconds / 24, connections=_CONNECTIONS, seed=number)
                    report = asyncio.run(load)
                    _check(report)
                    reports[way].append(report)
            first = next(iter(reports.values()))
            found += [_measurement(sizes.words, way, each, first) for way, each in reports.items()]
    return found


def _right_by(predictor: Predictor) -> Callable[[bytes], Sequence[float]]:
    """What the network answers when it is run directly, as a probability for each class in their order."""

    def right(content: bytes) -> Sequence[float]:
        found = predictor.read(content)
        rows, _ = predictor.run_bounded(predictor.level_of(found.size), [found])
        return [float(probability) for probability in rows[0]]

    return right


def _sizes(predictor: Predictor) -> list[_Sizes]:
    """Images for the lowest level, for the highest and larger, and of all sizes."""
    sides = [min(grid) for grid in predictor.grids] or [32]
    small, large = max(SMALLEST, min(sides)), max(LARGEST // 2, max(sides))
    return [
        _Sizes(f"{SMALLEST} to {small} px", SMALLEST, small),
        _Sizes(f"{large} to {2 * large} px", large, 2 * large),
        _Sizes(f"{SMALLEST} to {LARGEST} px", SMALLEST, LARGEST),
    ]


def _check(report: LoadReport) -> None:
    if report.wrong or report.lost:
        raise RunError(f"{report.wrong} answers were wrong and {report.lost} were lost: {'; '.join(report.words)}")
    if not report.answers:
        raise RunError("the server gave no answer within --seconds: give a larger number")


def _measurement(
    case: str, way: str, reports: Sequence[LoadReport], reference: Sequence[LoadReport] | None
) -> Measurement:
    """The seconds of an answer over the rounds, and what else is known of them."""
    time = _time(reports)
    last = reports[-1]
    facts: dict[str, Fact] = {
        "connections": _CONNECTIONS,
        "requests": sum(report.requests for report in reports),
        "answers": sum(report.answers for report in reports),
        "refusals": sum(report.refusals for report in reports),
        "cut_off": sum(report.cut_off for report in reports),
        "wrong": sum(report.wrong for report in reports),
        "lost": sum(report.lost for report in reports),
        "answers_a_second": 1 / time.median,
        "together": statistics.mean(report.together for report in reports),
        "half_within": statistics.median(report.latency(0.5) for report in reports),
        "most_within": max(report.latency(0.99) for report in reports),
    }
    if last.memory:
        settled = len(last.memory) // 4
        facts |= {"memory_settled": max(last.memory[: settled + 1]), "memory_after": max(last.memory[settled:])}
        facts |= {
            "memory_start": last.memory[0],
            "memory_quarter": last.memory[settled],
            "memory_half": last.memory[2 * settled],
            "memory_end": last.memory[-1],
        }
    faster = None if reference is None else _time(reference).median / time.median
    return Measurement("load", case, way, time, None, faster, None, facts)


def _time(reports: Sequence[LoadReport]) -> Timing:
    times = sorted(report.seconds / report.answers for report in reports)
    if len(times) < 3:
        return Timing(statistics.median(times), times[0], times[-1])
    lower, median, upper = statistics.quantiles(times, n=4, method="inclusive")
    return Timing(median, lower, upper)
