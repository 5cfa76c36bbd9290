"""A load for a running server: many connections that send files of all sizes, corrupt ones and slow ones among them.

Each answer is compared with the right one, and each request must get an answer. `drive` is what tests and
`arrn benchmark load` use; its client is one event loop of this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import random
import re
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

_PATIENCE = 120.0  # seconds for one answer, after which the request is lost
_BOUNDARY = "arrn-load"
_MOST_PROBLEMS = 20  # that are kept in words; all are counted
_MOST_IN_FORM = 6


@dataclass(frozen=True)
class LoadSample:
    """A file to send.

    Attributes:
        content: its bytes.
        right: the probabilities that the network gives when it is run directly; None for a file that must be refused.
        kind: its content type.
    """

    content: bytes
    right: Sequence[float] | None
    kind: str = "image/png"


@dataclass
class LoadReport:
    """What a load came to. A request that got neither its answer nor the refusal that it should get is lost.

    Attributes:
        seconds: from the first request to the last answer.
        requests: that were sent whole.
        answers: right ones; a form has several.
        refusals: of corrupt files, as it should be.
        cut_off: senders that were too slow, and were told so.
        wrong: answers with other probabilities than the right ones.
        lost: requests without an answer, or with one that they should not get.
        words: of the first wrong and lost ones.
        latencies: seconds of each request that was sent in one piece.
        batches: how many inputs ran together, for each answer.
        memory: bytes of the server's process, once a second.
    """

    seconds: float = 0.0
    requests: int = 0
    answers: int = 0
    refusals: int = 0
    cut_off: int = 0
    wrong: int = 0
    lost: int = 0
    words: list[str] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)

    @property
    def together(self) -> float:
        """How many inputs ran together, on average over the answers."""
        return statistics.mean(self.batches) if self.batches else 0.0

    @property
    def rate(self) -> float:
        """Right answers a second."""
        return self.answers / self.seconds if self.seconds else 0.0

    def latency(self, share: float) -> float:
        """The seconds within which that share of the requests was answered."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def summary(self) -> str:
        """All of it in a line."""
        memory = f", memory {self.memory[0] / 1e6:.0f} to {self.memory[-1] / 1e6:.0f} MB" if self.memory else ""
        return (
            f"{self.requests:,} requests in {self.seconds:.1f} s: {self.answers:,} right answers ({self.rate:.0f} a "
            f"second, {self.together:.1f} together), {self.refusals:,} corrupt files refused, {self.cut_off} slow "
            f"senders cut off, {self.wrong} wrong, {self.lost} lost; half within {1e3 * self.latency(0.5):.0f} ms, "
            f"99% within {1e3 * self.latency(0.99):.0f} ms{memory}"
        )


async def drive(
    address: tuple[str, int],
    samples: Sequence[LoadSample],
    *,
    seconds: float = math.inf,
    requests: int | None = None,
    connections: int = 32,
    slow: int = 0,
    forms: float = 0.0,
    tolerance: float = 1e-4,
    watch: bool = False,
    seed: int = 0,
) -> LoadReport:
    """Sends samples for some time, or so many of them, each connection one request after another.

    Args:
        address: host and port of the server.
        samples: what is drawn from.
        seconds: after which no new request is sent; what was sent is waited for.
        requests: that a connection sends at most; a slow one then sends one pair.
        connections: at once.
        slow: how many of the connections send slowly: in turn a file in pieces, which is to be answered, and one that
            does not end, which is to be cut off.
        forms: the share of requests that hold several files.
        tolerance: of probabilities.
        watch: whether to ask for the server's memory, once a second.
        seed: of what is drawn.
    """
    report = LoadReport()
    began = time.monotonic()
    end = began + seconds
    clients = [
        _Client(address, samples, random.Random(f"{seed} {number}"), report, forms, tolerance)
        for number in range(connections)
    ]
    work = [
        client.send_slowly(_rounds(end, requests and 1)) if number < slow else client.send(_rounds(end, requests))
        for number, client in enumerate(clients)
    ]
    watching = asyncio.ensure_future(_watch(address, report)) if watch else None
    await asyncio.gather(*work)
    if watching is not None:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching  # what went wrong in it is told
    report.seconds = time.monotonic() - began
    return report


def _rounds(end: float, most: int | None) -> Iterator[int]:
    """Counts until the time is over, or there are enough."""
    return itertools.takewhile(
        lambda number: time.monotonic() < end and (most is None or number < most), itertools.count()
    )


class _Client:
    """One connection, opened again where the server has closed it."""

    def __init__(
        self,
        address: tuple[str, int],
        samples: Sequence[LoadSample],
        rng: random.Random,
        report: LoadReport,
        forms: float,
        tolerance: float,
    ) -> None:
        self.samples, self.rng, self.report = samples, rng, report
        self.forms, self.tolerance = forms, tolerance
        self.connection = _Connection(address)

    async def send(self, rounds: Iterable[int]) -> None:
        for _ in rounds:
            if self.rng.random() < self.forms:
                files = self.rng.choices(self.samples, k=self.rng.randint(2, _MOST_IN_FORM))
                body, kind = _form(files), f"multipart/form-data; boundary={_BOUNDARY}"
            else:
                files = [self.rng.choice(self.samples)]
                body, kind = files[0].content, files[0].kind
            began = time.monotonic()
            await self._exchange(files, _head(kind, len(body)) + body, form="multipart" in kind)
            self.report.latencies.append(time.monotonic() - began)
        self.connection.close()

    async def send_slowly(self, rounds: Iterable[int]) -> None:
        for _ in rounds:
            sample = self.rng.choice(self.samples)
            head, body = _head(sample.kind, len(sample.content)), sample.content
            pieces = [body[start : start + len(body) // 4 + 1] for start in range(0, len(body), len(body) // 4 + 1)]
            await self._exchange([sample], head, *pieces, pause=0.05)
            try:
                status, _ = await self.connection.exchange(_head(sample.kind, len(body) + 10**6), pause=0.1, feed=True)
            except (OSError, EOFError, TimeoutError) as error:
                self._lose(f"a slow sender got no answer ({type(error).__name__})")
                continue
            if status == 408:
                self.report.cut_off += 1
            else:
                self._lose(f"a slow sender got status {status}")
        self.connection.close()

    async def _exchange(
        self, files: Sequence[LoadSample], *pieces: bytes, form: bool = False, pause: float = 0.0
    ) -> None:
        self.report.requests += 1
        try:
            status, document = await self.connection.exchange(*pieces, pause=pause)
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            self._lose(f"no answer ({type(error).__name__}: {error})")
            return
        told = document.get("results", []) if form else [{"answer" if status == 200 else "problem": document}]
        if len(told) != len(files):
            self._lose(f"status {status} for {len(files)} files: {str(document)[:200]}")
            return
        for sample, result in zip(files, told, strict=True):
            self._judge(sample, result)

    def _judge(self, sample: LoadSample, result: dict[str, Any]) -> None:
        answer, problem = result.get("answer"), result.get("problem")
        if sample.right is None and problem is not None and problem["status"] == 422:
            self.report.refusals += 1
        elif sample.right is None or answer is None:
            self._lose(f"{len(sample.content)} bytes got {str(result)[:200]}")
        else:
            given = {each["label"]: each["probability"] for each in answer["top"]}
            best = max(sample.right)
            right = all(abs(sample.right[label] - value) <= self.tolerance for label, value in given.items())
            if right and sample.right[answer["label"]] >= best - self.tolerance:
                self.report.answers += 1
                self.report.batches.append(answer["batch"])
            else:
                self.report.wrong += 1
                self._note(f"wrong: {given} for {list(sample.right)[:10]}")

    def _lose(self, words: str) -> None:
        self.report.lost += 1
        self._note(f"lost: {words}")

    def _note(self, words: str) -> None:
        if len(self.report.words) < _MOST_PROBLEMS:
            self.report.words.append(words)


class _Connection:
    """HTTP as far as a load needs it."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(self, *pieces: bytes, pause: float = 0.0, feed: bool = False) -> tuple[int, dict[str, Any]]:
        """Sends a request, with a pause between its pieces, and returns the status and the JSON of the answer.

        With `feed`, a byte follows after each pause until there is an answer.
        """
        if self._streams is None or self._streams[1].is_closing() or self._streams[0].at_eof():
            self.close()
            self._streams = await asyncio.open_connection(*self.address)
        reader, writer = self._streams
        try:
            async with asyncio.timeout(_PATIENCE):
                for number, piece in enumerate(pieces):
                    if number and pause:
                        await asyncio.sleep(pause)
                    writer.write(piece)
                    await writer.drain()
                answer = asyncio.ensure_future(self._answer(reader))
                while feed and not (await asyncio.wait({answer}, timeout=pause))[0]:
                    writer.write(b"x")
                status, headers, body = await answer
        except BaseException:
            self.close()
            raise
        if headers.get("connection") == "close":
            self.close()
        return status, json.loads(body)

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        headers = {name.lower(): value.strip() for name, value in re.findall(r"^([\w-]+):(.*)\r$", head, re.MULTILINE)}
        return int(head.split()[1]), headers, await reader.readexactly(int(headers["content-length"]))

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def _head(kind: str, length: int) -> bytes:
    return (
        f"POST /predict?top=1000 HTTP/1.1\r\nHost: load\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def _form(files: Sequence[LoadSample]) -> bytes:
    parts = [
        f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{number}"\r\n\r\n'.encode()
        + sample.content
        for number, sample in enumerate(files)
    ]
    return b"\r\n".join([*parts, f"--{_BOUNDARY}--\r\n".encode()])


async def _watch(address: tuple[str, int], report: LoadReport) -> None:
    while True:
        reader, writer = await asyncio.open_connection(*address)
        try:
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: load\r\nConnection: close\r\n\r\n")
            text = (await reader.read()).decode()
        finally:
            writer.close()
        found = re.search(r"^process_resident_memory_bytes (\S+)", text, re.MULTILINE)
        if found is not None:
            report.memory.append(round(float(found[1])))
        await asyncio.sleep(1.0)
