"""A server process: its socket, uvicorn with a time limit on heads, and a stop that finishes what was accepted."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...errors import ArrnError
from ..predictor import Predictor
from .application import Application
from .problems import Problem, title
from .server_settings import ServerSettings

_BACKLOG = 1024
_LINGER_SECONDS = 2.0


def serve(predictor: Predictor, settings: ServerSettings, say: Callable[[str], None], *, log: bool = False) -> None:
    """Serves until SIGTERM or Ctrl-C; then refuses new requests, finishes the others, and returns.

    Args:
        predictor: any.
        settings: limits, and how to batch.
        say: told where the server listens and how it ended.
        log: whether to write a line to stderr for each request.

    Raises:
        ArrnError: for an address that cannot be had, or a network that does not run.
    """
    with listen(settings) as listener:  # before the network is warmed up: an address in use is said at once
        application = Application(predictor, settings)
        application.answering.warm_up()
        host, port = listener.getsockname()[:2]
        say(f"serving on http://{f'[{host}]' if ':' in host else host}:{port} (Ctrl-C stops)")
        server = GracefulServer(application, log=log)
        server.run(sockets=[listener])
    say("stopped" if not server.force_exit else "stopped at once: requests in progress were not answered")


def listen(settings: ServerSettings) -> socket.socket:
    """A socket that listens on the settings' address.

    Raises:
        ArrnError: where there is no such address, or another program has it.
    """
    host, port = settings.host, settings.port
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        why = str(error.strerror or error).partition(" (while")[0]
        raise ArrnError(f"cannot listen on {host} port {port}: {why}; choose another --port or --host") from None


class GracefulServer(uvicorn.Server):
    """Uvicorn that answers 503 to new requests while it finishes those that it accepted.

    Args:
        application: what it serves.
        log: whether to write a line to stderr for each request.
    """

    def __init__(self, application: Application, *, log: bool = False) -> None:
        self.answering = application.answering
        self._deadline: float | None = None
        settings = self.answering.settings
        if log:
            _log_requests()
        super().__init__(
            uvicorn.Config(
                application,
                http=_protocol(settings.receive_seconds),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=log,
                server_header=False,
                proxy_headers=False,  # nothing here depends on who the client is
                timeout_keep_alive=15,
                timeout_graceful_shutdown=2,  # what was accepted is finished before; see `on_tick`
                # Connections without a request count here, requests in progress in the gate.
                limit_concurrency=4 * settings.max_requests,
            )
        )

    def stop(self) -> None:
        """Refuses new requests from now on; the server ends when the others are answered, or their time is over."""
        self.answering.stopping = True
        self._deadline = time.monotonic() + self.answering.settings.stop_seconds

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # A second signal is from someone who does not want to wait. Neither is raised again when the server has ended.
        if self._deadline is not None:
            self.should_exit = self.force_exit = True
        else:
            self.stop()

    async def on_tick(self, counter: int) -> bool:
        if self._deadline is not None and (self.answering.requests == 0 or time.monotonic() > self._deadline):
            self.should_exit = True
        return await super().on_tick(counter)


def _log_requests() -> None:
    logger = logging.getLogger("uvicorn.access")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)


class _LingeringTransport:
    """A transport that, when it is closed while the client still sends, reads and forgets that for a moment.

    A connection that is closed at once is reset by the next bytes, and the client may never see why it was refused.
    """

    def __init__(self, transport: asyncio.Transport, still_sending: Callable[[], bool]) -> None:
        self._transport, self._still_sending = transport, still_sending
        self.lingers = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self.lingers or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing():
            return
        if not self._still_sending() or not self._transport.can_write_eof():
            self._transport.close()
            return
        self.lingers = True
        with suppress(OSError):  # the client may have gone meanwhile
            self._transport.write_eof()
        self._transport.resume_reading()
        asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._transport.close)


def _protocol(seconds: float) -> type[asyncio.Protocol]:
    """Uvicorn's protocol, which refuses a request whose head does not arrive within `seconds`, and closes what is idle.

    Uvicorn waits without an end for the first request, and for the rest of a head that has begun.
    """

    class TimedProtocol(H11Protocol):
        _timer: asyncio.TimerHandle | None = None
        _lingering: _LingeringTransport

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            self._lingering = _LingeringTransport(transport, lambda: self.cycle is not None and self.cycle.more_body)
            super().connection_made(cast(asyncio.Transport, self._lingering))
            self._await_head()

        def data_received(self, data: bytes) -> None:
            if self._lingering.lingers:
                return
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop_timer()
            elif self._timer is None:
                self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def send_400_response(self, msg: str) -> None:
            # The request in progress, if any, cannot be answered any more; its answer may have begun already.
            if self.conn.our_state is h11.SEND_RESPONSE or self.conn.our_state is h11.IDLE:
                super().send_400_response(msg)
            else:
                self.transport.close()
            if self.cycle is not None:
                self.cycle.disconnected = True
                self.cycle.message_event.set()

        def _await_head(self) -> None:
            self._timer = self.loop.call_later(seconds, self._too_late)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _too_late(self) -> None:
            self._timer = None
            if not (self.cycle is None or self.cycle.response_complete) or self.transport.is_closing():
                return
            begun = len(self.conn.trailing_data[0])
            if begun and self.conn.our_state is h11.IDLE:  # a connection on which nothing was asked is just closed
                came = f"After {seconds:g} seconds, only {begun:,} bytes of the head had arrived"
                self._refuse(Problem(408, f"{came}: send the head faster."))
            self.transport.close()

        def _refuse(self, problem: Problem) -> None:
            response = problem.response()
            headers = [*response.raw_headers, (b"connection", b"close")]
            reason = title(problem.status).encode()
            for event in (
                h11.Response(status_code=problem.status, headers=headers, reason=reason),
                h11.Data(data=bytes(response.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event))

    return TimedProtocol
