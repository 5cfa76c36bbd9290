"""Stopping when asked: SIGINT and SIGTERM let the step at hand finish, so that a checkpoint can be written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether a signal asked the run to stop, and which."""

    def __init__(self) -> None:
        self.signal: str | None = None


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Within it, the first SIGINT or SIGTERM is noted; a second one acts as it does by default."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request  # only the main thread may set handlers
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: FrameType | None) -> None:
        request.signal = signal.Signals(number).name
        for each, handler in previous.items():
            signal.signal(each, handler)

    for number in previous:
        signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
