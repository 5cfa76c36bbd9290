"""Requests to a server: raw bytes of HTTP with something wrong in them, and a conversation with a real server."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fuzzing.mutations import damage, extreme, hostile_text
from fuzzing.samples import encoded

_STATUS, _LENGTH = re.compile(rb"HTTP/1\.1 (\d{3}) "), re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
_PROBLEM = b"application/problem+json"
_PATIENCE = 10.0  # seconds for the whole conversation; the server's own limits are below it

Headers = list[tuple[str, str]]


def form(parts: Sequence[tuple[str, str, bytes]], boundary: str = "xyz") -> bytes:
    """A multipart body of files: the field, the file's name, its content."""
    text = b""
    for field, name, content in parts:
        text += f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"; filename="{name}"\r\n\r\n'.encode(
            "utf-8", "surrogateescape"
        )
        text += content + b"\r\n"
    return text + f"--{boundary}--\r\n".encode()


def request(line: str, headers: Headers, body: bytes) -> bytes:
    """The bytes of a request; they are what they say, be it HTTP or not."""
    head = "".join(f"{text}\r\n" for text in (line, *(f"{name}: {value}" for name, value in headers)))
    return head.encode("utf-8", "surrogatepass") + b"\r\n" + body


def seeds() -> tuple[bytes, ...]:
    """Requests that a server answers well: a raw body, a form of two files, and others."""
    picture, files = encoded(), form([("file", "a.png", encoded()), ("file", "b.jpg", encoded("JPEG", size=16))])
    return (
        _whole("POST /predict?top=2", "image/png", picture),
        _whole("POST /predict", "application/octet-stream", picture),
        _whole("POST /predict?top=1", "multipart/form-data; boundary=xyz", files),
        _whole("POST /predict?top=1", "multipart/form-data; boundary=xyz", files),
        request("GET /network HTTP/1.1", [("Host", "x")], b""),
        request("GET /metrics HTTP/1.1", [("Host", "x")], b""),
        request("GET /docs HTTP/1.1", [("Host", "x")], b""),
    )


def _whole(start: str, kind: str, body: bytes) -> bytes:
    return request(
        f"{start} HTTP/1.1", [("Host", "x"), ("Content-Type", kind), ("Content-Length", str(len(body)))], body
    )


def mutate(data: bytes, rng: random.Random, repair: bool, other: bytes) -> tuple[bytes, str]:
    """For a request: its bytes, its body, its headers or its first line; with `repair`, the length is right again."""
    if rng.random() < 0.2:
        return damage(data, rng, other)
    head, _, body = data.partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    headers: Headers = [(name, value) for name, _, value in (field.partition(": ") for field in fields)]
    done = []
    for _ in range(rng.choice((1, 1, 2))):
        way = rng.choice((_body, _body, _form, _header, _header, _line, _encoding, _many))
        line, headers, body, what = way(line, headers, body, rng, other)
        done.append(what)
    if repair:
        headers = [
            (name, str(len(body))) if name == "Content-Length" and value.isdigit() else (name, value)
            for name, value in headers
        ]
    return request(line, headers, body), "; ".join(done)


Changed = tuple[str, Headers, bytes, str]


def _body(line: str, headers: Headers, body: bytes, rng: random.Random, other: bytes) -> Changed:
    body, done = damage(body, rng, other)
    return line, headers, body, f"body: {done}"


def _form(line: str, headers: Headers, body: bytes, rng: random.Random, other: bytes) -> Changed:
    """Another form: names that mean harm, many files, empty ones, a boundary that is wrong."""
    boundary = rng.choice(("xyz", "xyz", "zyx", "", "x" * 5000, hostile_text(rng)))
    count = rng.choice((0, 1, 3, 200))
    parts = [
        (rng.choice(("file", hostile_text(rng))), hostile_text(rng)[:500], rng.choice((encoded(), b"", other[:2000])))
        for _ in range(count)
    ]
    try:
        body = form(parts, boundary)
    except UnicodeEncodeError:
        body = b"--xyz\r\n\r\n"
    said = rng.choice(("xyz", boundary))
    headers = [(name, value) for name, value in headers if name != "Content-Type"]
    return line, [*headers, ("Content-Type", f"multipart/form-data; boundary={said}")], body, f"a form of {count} files"


def _header(line: str, headers: Headers, body: bytes, rng: random.Random, other: bytes) -> Changed:
    known = ("Content-Length", "Content-Type", "Transfer-Encoding", "Content-Encoding", "Expect", "Connection", "Host")
    name = rng.choice((*known, "Authorization", "Upgrade", "Range", hostile_text(rng)[:200]))
    values = (
        "chunked",
        "gzip",
        "identity",
        "100-continue",
        "close",
        "Bearer x",
        "websocket",
        "bytes=0-",
        "-1",
        "",
        "0",
    )
    value = rng.choice((*values, str(extreme(rng, 1))[:10_000], hostile_text(rng)[:10_000], "image/" + "x" * 70_000))
    kept = headers if rng.random() < 0.3 else [pair for pair in headers if pair[0] != name]
    return line, [*kept, (name, value)], body, f"{name!r:.30}: {value!r:.40}"


def _line(line: str, headers: Headers, body: bytes, rng: random.Random, other: bytes) -> Changed:
    top = str(extreme(rng, 1))[:5000]
    paths = (f"/predict?top={top}", "/predict?top=1&top=2", f"/{hostile_text(rng)[:5000]}", "/../../etc/passwd")
    path = rng.choice((*paths, "//", "*", "http://x/predict", "/predict/", "/%00", "/" + "a" * 100_000, "/docs"))
    method = rng.choice(("GET", "POST", "PUT", "HEAD", "OPTIONS", "CONNECT", "DELETE", "TRACE", hostile_text(rng)[:50]))
    line = f"{method} {path} {rng.choice(('HTTP/1.1', 'HTTP/1.0', 'HTTP/2', 'HTTP/9.9', ''))}"
    return line, headers, body, f"{line!r:.60}"


def _encoding(line: str, headers: Headers, body: bytes, rng: random.Random, other: bytes) -> Changed:
    """Chunks of sizes that are wrong; a body that decompresses to a thousand times its size."""
    if rng.random() < 0.3:
        bomb = gzip.compress(bytes(50_000_000), 9)
        headers = [*(pair for pair in headers if pair[0] != "Content-Length"), ("Content-Length", str(len(bomb)))]
        return line, [*headers, ("Content-Encoding", "gzip")], bomb, "a body that decompresses to 50 MB"
    size = rng.choice((f"{len(body):x}", "ffffffffffffffff", "-1", "0", f"{len(body) // 2:x}", "1" * 5000, "zz"))
    chunks = b"".join(
        f"{size}{rng.choice(('', ';a=b'))}\r\n".encode() + body + b"\r\n" for _ in range(rng.choice((1, 2)))
    )
    headers = [pair for pair in headers if pair[0] != "Content-Length" or rng.random() < 0.2]
    end = rng.choice((b"0\r\n\r\n", b"", b"0\r\nX: y\r\n\r\n"))
    return line, [*headers, ("Transfer-Encoding", "chunked")], chunks + end, f"chunks of {size!r:.20}"


def _many(line: str, headers: Headers, body: bytes, rng: random.Random, other: bytes) -> Changed:
    count = rng.choice((100, 2000))
    return line, [*headers, *((f"X-{n}", "y" * 40) for n in range(count))], body, f"{count} more headers"


def converse(predictor: Any, content: bytes) -> list[int]:
    """Sends the bytes to a server over the predictor, and returns the statuses of its answers.

    Raises:
        AssertionError: for an error of the server's own, and for an answer that is not as it should be.
    """
    from arrn.runtime.serving.application import Application
    from arrn.runtime.serving.listening import GracefulServer
    from arrn.runtime.serving.server_settings import ServerSettings

    settings = ServerSettings(
        delay=0.0, decoders=1, max_body=500_000, max_files=8, max_waiting=16, receive_seconds=1.0, answer_seconds=5.0
    )
    server = GracefulServer(Application(predictor, settings))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("server.sock")
        listener.listen()
        told = asyncio.run(asyncio.wait_for(_talk(server, listener, content), _PATIENCE))
    Path("server.sock").unlink(missing_ok=True)
    statuses = []
    while told:
        head, _, rest = told.partition(b"\r\n\r\n")
        status, length = _STATUS.match(head), _LENGTH.search(head + b"\r\n")
        assert status is not None, f"an answer begins with {told[:100]!r}"
        statuses.append(int(status[1]))
        most = 0 if statuses[-1] < 200 else None  # "100 Continue" has no body
        body = rest[: most if length is None else int(length[1])]
        told = rest[len(body) :]
        assert statuses[-1] != 500, f"the server failed: {body[:500]!r}"
        if _PROBLEM in head and body:  # to a HEAD there is none
            document = json.loads(body)
            assert 0 < len(document["detail"]) < 3000, body[:500]
            sys.stdout.write(f"{document['detail']!a}\n")
    return statuses


async def _talk(server: Any, listener: socket.socket, content: bytes) -> bytes:
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.005)
    reader, writer = await asyncio.open_unix_connection("server.sock")
    told = b""
    try:
        writer.write(content)
        await writer.drain()
        # The first answer is waited for as long as the server has patience; after it a connection may stay open.
        while part := await asyncio.wait_for(reader.read(2**20), 0.2 if told else 3.0):
            told += part
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.close()
        server.stop()
        await serving
    return told
