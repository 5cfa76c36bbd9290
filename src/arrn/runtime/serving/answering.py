"""From the bytes of files to answers: decoding in threads, the batcher, limits, health and stopping."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np

from ...errors import ArrnError
from ..answers import make_answer
from ..levels import format_grid
from ..predictor import Predictor
from ..signals import Signal
from .batching import Answered, Batcher, NetworkError, QueueFullError, StoppedError
from .bodies import HeldBytes, Upload
from .problems import Problem, busy, sentence, writable
from .server_metrics import ServerMetrics
from .server_settings import ServerSettings

_SMALL_FILE = 2**17  # bytes: smaller files are decoded by threads of their own, and do not wait for larger ones
_STUCK_AFTER = 120.0  # seconds that one batch may take before the server calls itself unhealthy
_log = logging.getLogger(__name__)


Result: TypeAlias = dict[str, Any] | Problem
"""The JSON of one answer, or why there is none."""

Left: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Returns when the client has gone."""


class ClientLeftError(Exception):
    """The client closed the connection before its answer was ready."""


class Answering:
    """Answers files by a predictor, within the limits of the settings. All but the threads' work is on one event loop.

    Args:
        predictor: any; several threads use it.
        settings: limits, and how to batch.
    """

    def __init__(self, predictor: Predictor, settings: ServerSettings) -> None:
        self.predictor, self.settings = predictor, settings
        self.reader = dataclasses.replace(predictor.reader, max_pixels=settings.max_pixels)
        self.held = HeldBytes(settings.max_held)
        self.waiting = self.requests = 0
        self.stopping = False
        self.level_names = ["x".join(map(str, grid)) for grid in predictor.grids] or ["any"]
        self.metrics = ServerMetrics(
            self.level_names, lambda: self.waiting, lambda: self.held.now + self.batcher.held_bytes
        )
        self.batcher = Batcher(
            predictor.run,
            delay=settings.delay,
            most=settings.batch,
            most_held=settings.max_waiting,
            most_bytes=settings.max_held,
            workers=settings.workers,
            on_batch=self.metrics.batch,
        )
        self._small, self._large = (
            ThreadPoolExecutor(settings.decoders, f"decode-{size}") for size in ("small", "large")
        )

    def warm_up(self) -> None:
        """Runs the network once at each level, so that no request waits for what a first run sets up.

        Raises:
            ArrnError: for a network that does not run.
        """
        predictor = self.predictor
        kind = np.int16 if predictor.ndim == 1 else np.uint8
        grids = predictor.grids or ((32,) * predictor.ndim,)
        for level, grid in enumerate(grids):
            silent = np.zeros((predictor.channels, *grid), kind)
            try:
                predictor.run(level, [silent])
            except ArrnError:
                raise
            except Exception as error:
                raise ArrnError(
                    f"the network does not run on a {predictor.kind} of {format_grid(grid)}: {error}"
                ) from error

    def check_room(self, count: int) -> None:
        """Refuses `count` inputs where too many wait already, with status 429."""
        most = self.settings.max_waiting
        if self.waiting + count > most:
            raise busy(
                429,
                f"{self.waiting:,} inputs are waiting for an answer and {count:,} more exceed the limit ("
                f"{most:,}): try again in a second.",
            )

    async def answer(self, uploads: Sequence[Upload], top: int, left: Left) -> list[Result]:
        """The answer to each file, or the problem with it.

        Args:
            uploads: the files.
            top: the number of classes to tell.
            left: returns when the client has gone; its files are then given up.

        Raises:
            Problem: where there is no room for the files, or no time.
            ClientLeftError: where it has gone.
        """
        self.check_room(len(uploads))
        self.waiting += len(uploads)
        work = asyncio.gather(*(self._one(upload, top) for upload in uploads))
        gone = asyncio.ensure_future(left())
        both: list[asyncio.Future[Any]] = [work, gone]
        try:
            await asyncio.wait(both, timeout=self.settings.answer_seconds, return_when="FIRST_COMPLETED")
            if work.done():
                return work.result()
            for _ in uploads:
                self.metrics.outcome("left" if gone.done() else "failed")
            if gone.done():
                raise ClientLeftError
            raise busy(503, f"No answer was ready after {self.settings.answer_seconds:g} seconds: try again later.")
        finally:
            for task in both:
                task.cancel()
            await asyncio.wait(both)
            for task in both:
                if not task.cancelled():
                    task.exception()  # asked for, so that asyncio does not complain of one that nobody saw
            self.waiting -= len(uploads)

    async def _one(self, upload: Upload, top: int) -> Result:
        began = time.monotonic()
        loop = asyncio.get_running_loop()
        pool = self._small if len(upload.content) <= _SMALL_FILE else self._large
        try:
            signal = await loop.run_in_executor(pool, self._read, upload)
            decoded = time.monotonic() - began
            level = self.predictor.level_of(signal.size)
            places = math.prod(self.predictor.entry_grid(signal.size, level))
            answered = await asyncio.wrap_future(self.batcher.submit(level, signal.samples, places))
        except ArrnError as error:
            self.metrics.outcome("refused")
            return Problem(422, writable(sentence(str(error))))
        except QueueFullError:
            self.metrics.outcome("refused")
            return busy(429, "The server's memory for decoded inputs is full: try again in a second.")
        except StoppedError:
            self.metrics.outcome("refused")
            return self.stopped()
        except NetworkError as error:
            self.metrics.outcome("failed")
            return Problem(500, sentence(str(error)))
        except Exception:  # of our own; the other files of the request have nothing to do with it
            _log.exception("an input could not be answered")
            self.metrics.outcome("failed")
            return Problem(500, "The server failed on this input; its log tells why.")
        self.metrics.outcome("answered", answered.queued, level)
        return self._document(answered, signal, decoded, top)

    def _read(self, upload: Upload) -> Signal:
        where = repr(upload.name)[:80] if upload.name else f"the {self.predictor.kind}"
        try:
            return self.reader.read(upload.content, where)
        except MemoryError:
            raise ArrnError(f"{where} takes more memory than there is") from None

    def _document(self, answered: Answered, signal: Signal, decoded: float, top: int) -> dict[str, Any]:
        predictor = self.predictor
        answer = make_answer(
            answered.probabilities,
            None,  # numbers, beside which the names are put
            size=signal.given or signal.size,
            level=predictor.entry_grid(signal.size, answered.level),
            top=top,
        )
        return {
            "label": answer.label,
            "name": self._name(answer.label),
            "probability": answer.probability,
            "top": [
                {"label": label, "name": self._name(int(label)), "probability": probability}
                for label, probability in answer.top
            ],
            "size": list(answer.size),
            "level": answered.level,
            "grid": list(answer.level),
            "batch": answered.together,
            "milliseconds": {
                "decoded": _milliseconds(decoded),
                "queued": _milliseconds(answered.queued),
                "computed": _milliseconds(answered.computed),
            },
        }

    def _name(self, label: int) -> str | None:
        names = self.predictor.class_names
        return None if names is None else writable(names[label])

    def sickness(self) -> str | None:
        """Why the server should get no requests, in a sentence; None where it is well."""
        if self.stopping:
            return "The server is stopping."
        if not self.batcher.healthy:
            return "The network failed on its last three batches."
        if self.batcher.longest_running > _STUCK_AFTER:
            return f"The network has worked on one batch for {self.batcher.longest_running:.0f} seconds."
        return None

    def stopped(self) -> Problem:
        """What new requests are told while the server stops."""
        return Problem(503, "The server is stopping: send the request to another one.", {"Retry-After": "30"})

    def close(self) -> None:
        """Ends the threads; waits for what was accepted as long as the settings say."""
        self.stopping = True
        self.batcher.close(self.settings.stop_seconds)
        for pool in (self._small, self._large):
            pool.shutdown(wait=False, cancel_futures=True)


def _milliseconds(seconds: float) -> float:
    return round(1e3 * seconds, 3)
