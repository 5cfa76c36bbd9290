"""What a server is told when it starts: where it listens, how it batches, and the most that it takes."""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import ArrnError

TOKEN_VARIABLE = "ARRN_TOKEN"
SHORTEST_TOKEN = 16
_LONGEST_TOKEN = 4096
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "": 1.0}
_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_LEAST = {"delay": 0.0, "receive_seconds": 0.1, "answer_seconds": 0.1, "stop_seconds": 0.0}


@dataclass(frozen=True)
class ServerSettings:
    """Where a server listens, how it batches, and the most that it takes.

    Attributes:
        host: address to listen on. Any but a loopback address needs a token.
        port: to listen on; 0 takes a free one.
        token: that each request must bring; None where none is needed.
        delay: seconds that an input may wait for others of its level.
        batch: inputs that the network runs on together, at most.
        workers: threads that run the network.
        decoders: threads that decode files.
        max_body: bytes of a request's body.
        max_files: files of a request.
        max_pixels: of an image, or voxels of a volume.
        max_waiting: inputs that the server holds at once, from their arrival to their answer.
        max_held: bytes of all bodies that the server holds at once, and again of all decoded inputs.
        max_requests: requests that may be in progress at once.
        receive_seconds: for a request's head, and again for its body, to arrive.
        answer_seconds: for the answer, from the end of the body.
        stop_seconds: for what was accepted before a stop.

    >>> ServerSettings(batch=8).batch
    8
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    delay: float = 0.005
    batch: int = 32
    workers: int = 1
    decoders: int = min(4, os.cpu_count() or 1)
    max_body: int = 32_000_000
    max_files: int = 64
    max_pixels: int = 16_000_000
    max_waiting: int = 256
    max_held: int = 2**30
    max_requests: int = 256
    receive_seconds: float = 20.0
    answer_seconds: float = 60.0
    stop_seconds: float = 30.0

    def __post_init__(self) -> None:
        counts = ("batch", "workers", "decoders", "max_body", "max_files", "max_pixels", "max_waiting", "max_held")
        for name in (*counts, "max_requests"):
            self._check_whole(name, 1)
        self._check_whole("port", 0, 65535)
        if self.max_files > self.max_waiting:
            raise ArrnError(
                f"max_files, {self.max_files}, is more than max_waiting, {self.max_waiting}: a form of that many files "
                "would never be answered"
            )
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not (isinstance(value, int | float) and math.isfinite(value) and least <= value <= 3600):
                raise ArrnError(f"{name} must be {least:g} to 3600 seconds, got {value!r:.40}")
        if self.token is not None:
            _check_token(self.token, "the token")
        elif not is_loopback(self.host):
            raise ArrnError(
                f"--host {self.host} lets other machines connect, and needs a token: give --token-file FILE, or set "
                f"the environment variable {TOKEN_VARIABLE}"
            )

    def _check_whole(self, name: str, least: int, most: int = 2**40) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ArrnError(f"{name} must be a whole number from {least:,} to {most:,}, got {value!r:.40}")


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("::1")
    (True, True, False, True)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, which may be of any address
        return False


def find_token(file: Path | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The token in a file, or else in the environment; None where there is neither.

    Raises:
        ArrnError: for one that is too short, holds white space, or cannot be read.
    """
    if file is None:
        token = environment.get(TOKEN_VARIABLE)
        if token is not None:
            _check_token(token, f"the token in {TOKEN_VARIABLE}")
        return token
    try:
        with file.open("rb") as opened:
            content = opened.read(_LONGEST_TOKEN + 3)
        token = content.decode("ascii").strip()
    except OSError as error:
        raise ArrnError(f"the token file {file} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ArrnError(f"the token in {file} must consist of ASCII letters, digits and signs") from None
    _check_token(token, f"the token in {file}")
    return token


def _check_token(token: str, what: str) -> None:
    if not SHORTEST_TOKEN <= len(token) <= _LONGEST_TOKEN:  # the token itself is not shown
        raise ArrnError(f"{what} must have {SHORTEST_TOKEN} to {_LONGEST_TOKEN:,} characters, got {len(token):,}")
    if not re.fullmatch(r"[!-~]+", token):
        raise ArrnError(f"{what} must consist of ASCII letters, digits and signs, without white space")


def parse_seconds(option: str, text: str) -> float:
    """A time with its unit: `5ms`, `0.5s` or `2m`; a number alone is seconds.

    >>> parse_seconds("--delay", "5ms"), parse_seconds("--delay", "2 m")
    (0.005, 120.0)
    """
    return _measured(option, text, _SECONDS, "a time such as 5ms, 0.5s or 2m")


def parse_bytes(option: str, text: str) -> int:
    """A number of bytes with its unit: `32MB` (millions), `32MiB` (2^20 each), `500kB`; a number alone is bytes.

    >>> parse_bytes("--max-body", "32MB"), parse_bytes("--max-body", "1MiB")
    (32000000, 1048576)
    """
    return round(_measured(option, text, _BYTES, "a size such as 500kB, 32MB or 1GiB"))


def _measured(option: str, text: str, units: Mapping[str, float], wanted: str) -> float:
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([a-z]*)\s*", text.lower())
    if found is None or found[2] not in units:
        raise ArrnError(f"{option} takes {wanted}, got {text!r:.40}")
    number: float = float(found[1]) * units[found[2]]
    return number
