"""A small web server for a site on this machine, with the headers that such a page is best sent with."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from arrn.errors import ArrnError

_POLICY = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]+)"')


class _Handler(SimpleHTTPRequestHandler):
    """Hands out the files of one folder."""

    extensions_map = {  # noqa: RUF012 - as the base class declares it
        ".html": "text/html; charset=utf-8",
        ".css": "text/css; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".json": "application/json",
        ".svg": "image/svg+xml",
        ".png": "image/png",
        ".jpg": "image/jpeg",
        ".wasm": "application/wasm",
        ".txt": "text/plain; charset=utf-8",
        "": "application/octet-stream",
    }
    server_version, sys_version = "arrn", ""

    def __init__(self, *arguments: Any, policy: str, **options: Any) -> None:
        self.policy = policy
        super().__init__(*arguments, **options)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Content-Security-Policy", f"{self.policy}; frame-ancestors 'none'")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def list_directory(self, path: Any) -> None:
        self.send_error(404, "File not found")

    def log_message(self, format: str, *arguments: Any) -> None:
        """Says nothing: requests are of this machine alone."""


def open_server(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """A server of that folder on this machine's own address; its `serve_forever` runs it. Port 0 takes a free one.

    Raises:
        ArrnError: for a folder without a page, and a port that cannot be listened on.
    """
    page = folder / "index.html"
    found = _POLICY.search(page.read_text("utf-8")) if page.is_file() else None
    if found is None:
        raise ArrnError(f"{folder} holds no page that `arrn web` made")
    handler = partial(_Handler, directory=str(folder), policy=found[1])
    if not 0 <= port <= 65535:
        raise ArrnError(f"--port must be a whole number from 0 to 65,535, got {port}")
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        raise ArrnError(f"cannot listen on port {port}: {error.strerror or error}") from error
    server.daemon_threads = True
    return server


def serve_site(folder: Path, port: int, say: Callable[[str], None]) -> None:
    """Serves a site on this machine until Ctrl-C."""
    with open_server(folder, port) as server:
        say(f"open http://127.0.0.1:{server.server_address[1]} in a browser; Ctrl-C stops")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("stopped")
