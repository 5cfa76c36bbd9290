"""What every request passes: the token, the limit on requests, the stop; answers are counted and get their headers."""

from __future__ import annotations

import asyncio
import hmac

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .answering import Answering
from .problems import Problem, busy

OPEN_PATHS = frozenset({"/", "/docs", "/healthz", "/openapi.json"})
"""Paths that need no token: they tell nothing about the network."""

_GUARDED_PATHS = frozenset({"/metrics", "/network", "/predict"})
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Gate:
    """The outermost part of the application.

    Args:
        app: what is inside.
        answering: whose requests are counted.
    """

    def __init__(self, app: ASGIApp, answering: Answering) -> None:
        self.app, self.answering = app, answering

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answering = self.answering
        path = scope["path"] if scope["path"] in OPEN_PATHS | _GUARDED_PATHS else "other"
        status = 0

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if answering.stopping:
                    headers["Connection"] = "close"
            await send(message)

        refusal = self._refusal(scope)
        try:
            if refusal is not None:
                if scope["method"] not in ("GET", "HEAD"):
                    refusal.headers["Connection"] = "close"  # its body has not been read
                await refusal.response()(scope, receive, send_on)
                return
            answering.requests += 1
            try:
                await self.app(scope, receive, send_on)
            except asyncio.CancelledError:  # the time for stopping is over
                if status == 0:
                    late = Problem(503, "The server stopped before the answer was ready.", {"Connection": "close"})
                    await late.response()(scope, receive, send_on)
            finally:
                answering.requests -= 1
        finally:
            answering.metrics.request(path, status)

    def _refusal(self, scope: Scope) -> Problem | None:
        answering = self.answering
        path, token = scope["path"], answering.settings.token
        if token is not None and path not in OPEN_PATHS and not _is_token(Headers(scope=scope), token):
            return Problem(
                401,
                "This needs the server's token: send the header 'Authorization: Bearer TOKEN'.",
                {"WWW-Authenticate": "Bearer"},
            )
        if path in OPEN_PATHS:
            return None
        if answering.stopping:
            return answering.stopped()
        if answering.requests >= answering.settings.max_requests:
            return busy(
                503, f"{answering.requests:,} requests are in progress, which is the limit: try again in a second."
            )
        return None


def _is_token(headers: Headers, token: str) -> bool:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    # In the time that the given one's length takes, whatever it has in common with the right one.
    right = hmac.compare_digest(given.strip().encode("latin-1", "replace"), token.encode("ascii"))
    return right and scheme.lower() == "bearer"
