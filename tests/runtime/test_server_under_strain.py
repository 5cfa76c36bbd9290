"""A server with slow, absent, too many and departing clients, a slow network, and a stop in the middle."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest

from arrn import ArrnError
from arrn.runtime.serving.listening import listen
from arrn.runtime.serving.server_settings import ServerSettings
from arrn.runtime.signals import Reader, Signal
from commands import QUIET
from servers import PATIENCE, Brightness, Running, grey, png, serving

HEAD = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nContent-Length: "


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def connect(running: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE)


def read_all(connection: socket.socket) -> bytes:
    received = b""
    while chunk := connection.recv(65536):
        received += chunk
    return received


def in_background(pool: ThreadPoolExecutor, running: Running, count: int):
    """Requests that wait for the network, which stands still."""
    futures = [pool.submit(running.send, grey(10 * n)) for n in range(count)]
    until(lambda: running.answering.waiting == count)
    return futures


def test_a_slow_body_is_cut_off_and_told() -> None:
    with serving(Brightness()) as running, connect(running) as connection:
        running.change(receive_seconds=0.3)  # of bodies; heads have all the time they need
        connection.sendall(HEAD + b"1000\r\n\r\n")
        connection.settimeout(0.05)
        answer = b""
        for _ in range(999):  # a byte now and then does not buy time
            connection.sendall(b"x")
            try:
                answer = connection.recv(65536)
                break
            except TimeoutError:
                continue
        connection.settimeout(PATIENCE)
        answer += read_all(connection)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"send the body faster" in answer
        assert b"connection: close" in answer.lower()
        until(lambda: running.answering.held.now == 0)
        running.change(receive_seconds=PATIENCE)
        assert running.send(grey(1)).status_code == 200


BEGINNINGS = [b"", HEAD[:40]]


def test_a_connection_that_asks_for_nothing_is_closed() -> None:
    with serving(Brightness(), receive_seconds=0.2) as running, connect(running) as connection:
        assert read_all(connection) == b""


@pytest.mark.parametrize("before", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_a_slow_head_is_cut_off_and_told(before: bytes) -> None:
    cut_off_before = suppress(ConnectionError)  # where this thread stood still for long
    with serving(Brightness(), receive_seconds=0.5) as running, connect(running) as connection, cut_off_before:
        if before:
            connection.sendall(before)
            answer = b""
            while not answer.endswith(b'{"status":"ok"}'):
                answer += connection.recv(65536)
        connection.sendall(HEAD[:40])
        head, _, body = read_all(connection).rpartition(b"\r\n\r\n")
        assert b"HTTP/1.1 408 Request Timeout\r\n" in head
        assert b"connection: close" in head.lower()
        told = json.loads(body)
        assert (told["status"], told["title"]) == (408, "Request Timeout")
        assert told["detail"] == "After 0.5 seconds, only 40 bytes of the head had arrived: send the head faster."


@pytest.mark.parametrize("sent", BEGINNINGS)
def test_a_head_in_pieces_is_waited_for_until_then(sent: bytes) -> None:
    with serving(Brightness(), receive_seconds=PATIENCE) as running, connect(running) as connection:
        connection.sendall(sent)
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(PATIENCE)
        content = grey(1)
        connection.sendall((HEAD + str(len(content)).encode() + b"\r\n\r\n")[len(sent) :] + content)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_what_is_no_http_is_refused_quietly(caplog: pytest.LogCaptureFixture) -> None:
    with serving(Brightness()) as running:
        for sent in (b"\x16\x03\x01\x02\x00\x01\n\r\n", b"A" * 200_000):
            with connect(running) as connection:
                try:
                    connection.sendall(sent)
                    assert b" 400 " in read_all(connection)
                except ConnectionError:
                    pass  # closed while it was still sending
        assert running.send(grey(1)).status_code == 200
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("kind", [b"image/png", b"text/plain"])  # the second is refused before the body is read
def test_a_body_that_is_no_http_any_more_is_refused_quietly(kind: bytes, caplog: pytest.LogCaptureFixture) -> None:
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Type: " + kind + b"\r\n\r\n"
    with serving(Brightness()) as running:
        for pieces in ([head + b"zz\r\n"], [head, b"zz\r\n"], [head + b"1\r\nx\r\n", b"-1\r\n"]):
            with connect(running) as connection, suppress(ConnectionError):
                for piece in pieces:
                    connection.sendall(piece)
                answers = read_all(connection)
                assert answers.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 415 "))
                assert answers.count(b"HTTP/1.1") == 1
        until(lambda: running.answering.requests == 0)
        assert running.send(grey(1)).status_code == 200
    assert "Traceback" not in caplog.text
    assert "ASGI" not in caplog.text


def test_a_length_that_is_claimed_takes_no_memory() -> None:
    with serving(Brightness()) as running:
        for length in (b"99999999999999999", b"31999999"):
            with connect(running) as connection:
                connection.sendall(HEAD + length + b"\r\n\r\n")
                if length.startswith(b"9"):
                    assert b" 413 " in connection.recv(65536)
                else:
                    until(lambda: running.answering.requests == 1)
                    assert running.answering.held.now == 0


def test_more_inputs_than_may_wait_are_429_and_the_others_are_answered() -> None:
    network = Brightness()
    network.go.clear()
    with serving(network, max_waiting=4, max_files=4, delay=0.0) as running, ThreadPoolExecutor(4) as pool:
        waiting = in_background(pool, running, 3)
        refused = running.send_form(grey(1), grey(2))
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert "3 inputs are waiting for an answer and 2 more exceed the limit" in refused.json()["detail"]
        assert "arrn_held_inputs 3.0" in running.client.get("/metrics").text
        network.go.set()
        assert [future.result().status_code for future in waiting] == [200] * 3
        assert running.send_form(grey(1), grey(2)).status_code == 200
        assert running.answering.waiting == running.answering.held.now == 0


def test_more_requests_than_may_be_in_progress_are_503() -> None:
    with serving(Brightness(), max_requests=2) as running:
        slow = [connect(running) for _ in range(2)]
        for connection in slow:
            connection.sendall(HEAD + b"9\r\n\r\n")
        until(lambda: running.answering.requests == 2)
        refused = running.send(grey(1))
        assert refused.status_code == 503
        assert "2 requests are in progress" in refused.json()["detail"]
        assert running.client.get("/healthz").status_code == 200
        for connection in slow:
            connection.close()
        until(lambda: running.answering.requests == 0)
        assert running.send(grey(1)).status_code == 200


def test_more_bytes_than_may_be_held_are_503() -> None:
    with serving(Brightness(), max_held=20_000) as running:
        with connect(running) as connection:
            connection.sendall(HEAD + b"15001\r\n\r\n" + bytes(15_000))
            until(lambda: running.answering.held.now == 15_000)
            refused = running.send(bytes(6000))
            assert refused.status_code == 503
            assert "memory for requests is full" in refused.json()["detail"]
        until(lambda: running.answering.held.now == 0)
        assert running.send(grey(1)).status_code == 200
        assert running.send(png(100, 100)).status_code == 503 or len(png(100, 100)) < 20_000
        assert running.send(grey(7, side=100)).status_code == 429  # 30,000 bytes when it is decoded


def test_an_answer_that_takes_too_long_is_503() -> None:
    network = Brightness()
    network.go.clear()
    with serving(network, answer_seconds=0.2) as running:
        late = running.send(grey(1))
        assert late.status_code == 503
        assert "No answer was ready after 0.2 seconds" in late.json()["detail"]
        running.change(answer_seconds=PATIENCE)
        network.go.set()
        assert running.send(grey(1)).status_code == 200
        until(lambda: running.answering.batcher.held == 0)
        assert running.answering.waiting == 0


def test_what_a_client_that_left_had_asked_for_is_not_computed() -> None:
    network = Brightness()
    network.go.clear()
    with serving(network, delay=0.0, batch=1) as running, ThreadPoolExecutor(1) as pool:
        (first,) = in_background(pool, running, 1)
        content = grey(99)
        with connect(running) as connection:
            connection.sendall(HEAD + str(len(content)).encode() + b"\r\n\r\n" + content)
            until(lambda: running.answering.batcher.held == 2)
        until(lambda: running.answering.waiting == 1)
        network.go.set()
        assert first.result().status_code == 200
        assert running.send(grey(1)).status_code == 200
        assert 'arrn_inputs_total{outcome="left"} 1.0' in running.client.get("/metrics").text
    assert len(network.batches) == 2


class Gated:
    """Reads files, but large ones only when it may."""

    def __init__(self, reader: Reader, most: int) -> None:
        self.reader, self.most = reader, most
        self.begun, self.go = threading.Event(), threading.Event()

    def read(self, given: bytes, where: str) -> Signal:
        if len(given) > self.most:
            self.begun.set()
            assert self.go.wait(PATIENCE)
        return self.reader.read(given, where)


def test_large_files_do_not_hold_up_small_ones() -> None:
    """Files are decoded by threads for small and for large ones."""
    large = png(500, 500)
    with serving(Brightness(), delay=0.0, decoders=1) as running, ThreadPoolExecutor(8) as pool:
        gated = running.answering.reader = Gated(running.answering.reader, most=len(large) - 1)
        slow = [pool.submit(running.send, large) for _ in range(8)]
        until(lambda: running.answering.waiting == 8)
        assert gated.begun.wait(PATIENCE)
        assert running.send(grey(1)).status_code == 200
        assert not any(future.done() for future in slow)
        gated.go.set()
        assert {future.result().status_code for future in slow} == {200}


def test_a_stop_answers_what_was_accepted_and_refuses_the_rest() -> None:
    network = Brightness()
    network.go.clear()
    with serving(network, delay=0.0) as running, ThreadPoolExecutor(8) as pool:
        accepted = in_background(pool, running, 5)
        running.server.stop()
        refused = running.send(grey(1))
        assert refused.status_code == 503
        assert refused.json()["detail"] == "The server is stopping: send the request to another one."
        assert refused.headers["connection"] == "close"
        assert running.client.get("/healthz").status_code == 503
        network.go.set()
        answers = [future.result() for future in accepted]
        assert [answer.status_code for answer in answers] == [200] * 5
        assert [answer.json()["name"] for answer in answers] == ["dark"] * 5
        running.thread.join(PATIENCE)
        assert not running.thread.is_alive()
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://127.0.0.1:{running.port}/healthz", trust_env=False)


def test_a_stop_does_not_wait_for_ever() -> None:
    network = Brightness()
    network.go.clear()
    with serving(network, delay=0.0, stop_seconds=0.2) as running, ThreadPoolExecutor(1) as pool:
        (accepted,) = in_background(pool, running, 1)
        running.server.stop()
        late = accepted.result(PATIENCE)
        assert late.status_code == 503
        assert "stopped before the answer was ready" in late.json()["detail"]
        network.go.set()


def test_an_address_that_cannot_be_had_is_told() -> None:
    with listen(ServerSettings(port=0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ArrnError, match=f"cannot listen on 127.0.0.1 port {port}: Address already in use; choose"):
            listen(ServerSettings(port=port))
    with pytest.raises(ArrnError, match=r"cannot listen on 192\.0\.2\.1 port 0"):
        listen(ServerSettings(host="192.0.2.1", port=0, token="x" * 16))
    with listen(ServerSettings(host="::1", port=0)) as six:
        assert six.getsockname()[0] == "::1"


SCRIPT = """
import numpy as np
from arrn.runtime import Predictor
from arrn.runtime.serving.listening import serve
from arrn.runtime.serving.server_settings import ServerSettings
from arrn.runtime.signals import Reader, Signal

class Bright(Predictor):
    def run(self, level, signals):
        return np.array([[0.0, 1.0] for _ in signals])

bright = Bright(grids=[(8, 8)], ndim=2, channels=3, class_names=["dark", "bright"])
serve(bright, ServerSettings(port=0, receive_seconds=60), lambda text: print(text, flush=True), log=True)
print("the end")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_stop_a_server_with_status_0(number: int) -> None:
    environment = os.environ | QUIET | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        line = server.stdout.readline()
        address = line.split()[2]
        assert line == f"serving on {address} (Ctrl-C stops)\n"
        answer = httpx.post(
            f"{address}/predict?top=1",
            content=grey(250),
            headers={"Content-Type": "image/png"},
            trust_env=False,
            timeout=PATIENCE,
        )
        assert answer.json()["name"] == "bright"

        def get(path: str) -> httpx.Response:
            return httpx.get(f"{address}/{path}", trust_env=False, timeout=PATIENCE)

        slow = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=PATIENCE)
        content = grey(250)
        slow.sendall(HEAD + str(len(content)).encode() + b"\r\n\r\n" + content[:20])
        until(lambda: "arrn_held_bytes 20.0" in get("metrics").text)
        server.send_signal(number)
        until(lambda: get("healthz").status_code == 503)
        slow.sendall(content[20:])  # accepted before the stop
        assert b" 200 " in read_all(slow)
        slow.close()
        out, err = server.communicate(timeout=PATIENCE)
    assert server.returncode == 0
    assert out == "stopped\nthe end\n"
    assert "Traceback" not in err
    assert '"POST /predict?top=1 HTTP/1.1" 200' in err
