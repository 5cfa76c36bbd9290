"""A stand-in for Google's object store on this machine: what `gcsfs` asks for to list and read, over one folder."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

BUCKET = "bucket"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: Path

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        found = re.fullmatch(r"(?:/download)?/storage/v1/b/([^/]+)(?:/o(?:/(.+))?)?", url.path)
        if found is None or found[1] != BUCKET:
            self._send(404, {"error": {"code": 404, "message": "The specified bucket does not exist."}})
        elif found[2] is None and url.path.endswith("/o"):
            prefix = parse_qs(url.query).get("prefix", [""])[0]
            inside = sorted(path for path in self.folder.rglob("*") if path.is_file())
            self._send(
                200, {"items": [each for path in inside if (each := self._object(path))["name"].startswith(prefix)]}
            )
        elif not (path := self.folder / unquote(found[2] or "")).is_file():
            self._send(404, {"error": {"code": 404, "message": "No such object"}})
        elif "alt=media" in url.query:
            self._part(path.read_bytes())
        else:
            self._send(200, self._object(path))

    def _object(self, path: Path) -> dict[str, Any]:
        name = path.relative_to(self.folder).as_posix()
        return {
            "kind": "storage#object",
            "name": name,
            "bucket": BUCKET,
            "size": str(path.stat().st_size),
            "etag": name,
        }

    def _part(self, content: bytes) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked is not None:
            content = content[int(asked[1]) : int(asked[2]) + 1]
        self._send(200 if asked is None else 206, content)

    def _send(self, status: int, content: bytes | dict[str, Any]) -> None:
        sent = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/octet-stream" if sent is content else "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)


@contextmanager
def bucket_server(folder: Path) -> Iterator[str]:
    """The address of the stand-in, whose bucket `BUCKET` holds the files of a folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"folder": folder}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
