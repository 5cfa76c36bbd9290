"""A network that needs no torch, and servers in a thread, for tests of serving."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx
import numpy as np

from arrn.runtime import Predictor
from arrn.runtime.serving.application import Application
from arrn.runtime.serving.listening import GracefulServer, listen
from arrn.runtime.serving.server_settings import ServerSettings
from pictures import encoded, picture

CLASSES = ("dark", "bright", "other")
PATIENCE = 60.0
"""Seconds after which a test gives up on what should have happened: no test passes or fails by how fast it is."""


class Brightness(Predictor):
    """Tells dark pictures from bright ones. A pixel of the value 13 in the corner makes it fail.

    Attributes:
        batches: the level and the number of signals of each run.
        go: the network waits until this is set.
    """

    def __init__(self, ndim: int = 2, channels: int = 3, classes: Sequence[str] | None = CLASSES) -> None:
        grids = tuple((side,) * ndim for side in (32, 16, 8))
        super().__init__(grids=grids, ndim=ndim, channels=channels, class_names=classes)
        self.batches: list[tuple[int, int]] = []
        self.go = threading.Event()
        self.go.set()

    def run(self, level: int, signals: Sequence[np.ndarray]) -> np.ndarray:
        self.go.wait(PATIENCE)
        self.batches.append((level, len(signals)))
        if any(signal.flat[0] == 13 for signal in signals):
            raise ZeroDivisionError("thirteen")
        return np.array([self.probabilities(level, signal) for signal in signals])

    @staticmethod
    def probabilities(level: int, signal: np.ndarray) -> tuple[float, float, float]:
        brightness = float(np.abs(signal).mean()) / 256
        other = 0.01 * (level + 1)
        return (1 - other) * (1 - brightness), (1 - other) * brightness, other


class Running:
    """A server that runs in a thread, and a client of it."""

    def __init__(self, server: GracefulServer, port: int, thread: threading.Thread) -> None:
        self.server, self.answering, self.port, self.thread = server, server.answering, port, thread
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE, trust_env=False)

    def send(self, content: bytes, kind: str = "image/png", path: str = "/predict", **headers: str) -> httpx.Response:
        return self.client.post(path, content=content, headers={"Content-Type": kind} | headers)

    def change(self, **settings: object) -> None:
        """Other limits from the next request on; those of connections and of the batcher stay."""
        self.answering.settings = dataclasses.replace(self.answering.settings, **settings)

    def send_form(self, *files: bytes, path: str = "/predict") -> httpx.Response:
        return self.client.post(path, files=[("file", (f"{n}.png", content)) for n, content in enumerate(files)])


@contextmanager
def serving(predictor: Predictor, **settings: object) -> Iterator[Running]:
    """A server on a free port of this machine; stopped and waited for in the end."""
    chosen = ServerSettings(**{"port": 0, "decoders": 2} | settings)
    listener = listen(chosen)
    server = GracefulServer(Application(predictor, chosen))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    running = Running(server, listener.getsockname()[1], thread)
    try:
        yield running
    finally:
        running.client.close()
        server.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def png(height: int, width: int, seed: int = 0) -> bytes:
    return encoded(picture(height, width, seed))


def grey(value: int, side: int = 8) -> bytes:
    return encoded(np.full((side, side, 3), value, np.uint8))
