"""How a file is damaged: at the level of bytes, and at the level of what the bytes mean in JSON, TOML and names.

Everything depends on a `random.Random` alone, so that a case comes out the same from its seed.
"""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

_WHOLE = (0, 1, -1, 2, 255, 2**15, 65_535, 2**31 - 1, 2**31, 2**32 - 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64)
_LARGE = (10**28, 10**300, 10**400, 10**4000)
_REAL = (0.0, -0.0, 1e-320, 1e-9, -0.5, 1e7, 1e38, 1e39, 1e300, 1e308, -1e308, math.nan, math.inf, -math.inf)
_ODD: tuple[Any, ...] = (None, True, False, "", [], {}, [[]], "1", "nan")

ESCAPES = (
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x1b[2J\x1b[H",
    "\x9b31m",
    "line\nline\r\narrn: all is well",
    "over\rwritten\b\b",
    "\u202egnp.exe\u2066",
    "zero\x00byte",
    "tab\tulator\x0b\x0c\x7f",
    "\u2028\u2029\ufeff",
)
"""What must not reach a terminal as it is."""

MARKUP = "\"><script>alert('fuzz')</script>"
"""What a browser must not run when it shows a report."""

_TEXTS = (
    "[bold red]markup[/]",
    "[/]",
    "[link=https://example.org]x[/link]",
    MARKUP,
    "x" * 100_000,
    "\ud800",
    "\U0001f600" * 300,
    "%s%n{0}{}",
    "$(touch ../canary)",
    "'; __import__('os').system('touch ../canary') #",
    "../escaped",
    "../../escaped/deeper",
    "/dev/zero",
    "~",
    "--help",
    "-",
    ".",
    "..",
    "nul",
)
_NESTED = "\ue000nested"  # stands for what `json.dumps` cannot write
_DEPTH = 100_000


CANARY = "../canary"
"""A file that only code from a file would make, as seen from where a case runs."""


class _Harm:
    """Opens the canary when it is unpickled."""

    def __reduce__(self) -> Any:
        return open, (CANARY, "w")


PICKLED = pickle.dumps(_Harm())


def hostile_text(rng: random.Random) -> str:
    """A name or a value that means harm."""
    return rng.choice(ESCAPES if rng.random() < 0.5 else _TEXTS)


def extreme(rng: random.Random, like: Any = None) -> Any:
    """A value in the place of `like`: often of its type, far outside of what is meant; sometimes of another type."""
    if rng.random() < 0.25:
        like = rng.choice([0, 0.5, "", [0], None])
    if isinstance(like, bool) or like is None:
        return rng.choice((*_ODD, 7, hostile_text(rng)))
    if isinstance(like, int):
        return _extreme_number(rng, like, _WHOLE if rng.random() < 0.7 else _LARGE)
    if isinstance(like, float):
        return _extreme_number(rng, like, _REAL)
    if isinstance(like, str):
        return hostile_text(rng) if rng.random() < 0.7 else rng.choice(_ODD)
    if isinstance(like, list):
        return _extreme_list(rng, like)
    return rng.choice((*_ODD, {"a": 1}, {hostile_text(rng): 1}, _NESTED))


def _extreme_number(rng: random.Random, like: float, others: Sequence[float]) -> Any:
    if rng.random() < 0.4:  # still plausible: what a check of ranges must catch
        return like * rng.choice((2, 10, 100, 1000, 10**4, 10**5, 10**6, -1)) + rng.choice((0, 1))
    return rng.choice(others)


def _extreme_list(rng: random.Random, like: list[Any]) -> Any:
    item = like[0] if like else 0
    return rng.choice(
        (
            like * 2,
            like[:-1],
            like[::-1],
            like + like[-1:],
            [item] * 100_000,
            [extreme(rng, item)] * max(1, len(like)),
            [like],
            [_NESTED],
            {str(n): value for n, value in enumerate(like)},
            [extreme(rng, item), *like[1:]],
        )
    )


def twist(document: Any, rng: random.Random, extra: Sequence[tuple[str, Any]] = ()) -> tuple[Any, str]:
    """A copy of a document of dictionaries and lists with one to three things wrong in it, and what was done.

    Args:
        document: as JSON or TOML holds it.
        rng: decides.
        extra: keys that may be put into a dictionary, with a value that would be right.
    """
    document = json.loads(json.dumps(document))
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(document))
        if not places:
            break
        holder, key, path = rng.choice(places)
        done.append(_wrong(holder, key, path, rng, extra))
    return document, "; ".join(done)


def _places(document: Any, path: str = "") -> Any:
    """Every dictionary or list, a key into it, and where that is."""
    pairs = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in list(pairs):
        yield document, key, f"{path}.{key}"
        if isinstance(value, dict | list):
            yield from _places(value, f"{path}.{key}")


def _wrong(holder: Any, key: Any, path: str, rng: random.Random, extra: Sequence[tuple[str, Any]]) -> str:
    """Does one thing to ``holder[key]``; returns what."""
    roll = rng.random()
    if roll < 0.1:
        del holder[key]
        return f"{path} removed"
    if isinstance(holder, dict):
        if roll < 0.16:
            name = hostile_text(rng)
            holder[name] = holder.pop(key)
            return f"{path} renamed to {name!r:.40}"
        if roll < 0.22:
            name = hostile_text(rng) if rng.random() < 0.5 else rng.choice("abc")
            holder[name] = extreme(rng)
            return f"{name!r:.40} added beside {path}"
        if extra and roll < 0.5:
            name, right = rng.choice(list(extra))
            holder[name] = extreme(rng, right) if rng.random() < 0.8 else right
            return f"{name} beside {path} is {holder[name]!r:.60}"
    if roll < 0.26:
        holder[key] = _NESTED
        return f"{path} nested {_DEPTH} deep"
    holder[key] = extreme(rng, holder[key])
    return f"{path} is {holder[key]!r:.60}"


def as_json(document: Any, rng: random.Random) -> bytes:
    """The document as JSON, with NaN and the like, and nested as deep as it says; sometimes a key stands twice."""
    text = json.dumps(document, ensure_ascii=rng.random() < 0.5)
    return _with_nesting(text, rng).encode("utf-8", "surrogatepass")


def as_toml(document: dict[str, Any], rng: random.Random) -> bytes:
    """Options as TOML; what TOML has no word for becomes a text."""
    lines = []
    for name, value in document.items():
        plain = name.isascii() and name.replace("_", "").isalnum()
        word = {math.inf: "inf", -math.inf: "-inf"}.get(value) if isinstance(value, float) else None
        word = "nan" if isinstance(value, float) and math.isnan(value) else word
        text = word or json.dumps("" if value is None else value, ensure_ascii=False)
        lines.append(f"{name if plain else json.dumps(name)} = {text}\n")
    rng.shuffle(lines)
    return _with_nesting("".join(lines), rng).encode("utf-8", "surrogatepass")


def _with_nesting(text: str, rng: random.Random) -> str:
    opened, closed = rng.choice((("[", "]"), ('{"a":', "}")))
    inner = "1" if opened != "[" else ""
    nested = opened * _DEPTH + inner + closed * _DEPTH
    for mark in (json.dumps(_NESTED), json.dumps(_NESTED, ensure_ascii=False)):
        text = text.replace(mark, nested, 3)  # it may stand in a list of many
    return text


def damage(data: bytes, rng: random.Random, other: bytes = b"") -> tuple[bytes, str]:
    """The bytes with something done to them, and what.

    Args:
        data: a file's.
        rng: decides.
        other: another file's, to splice with.
    """
    ways: list[Callable[[bytearray, random.Random, bytes], str]] = [
        *(_flip, _flip, _flip, _truncate, _truncate, _extend, _splice, _overwrite, _overwrite, _overwrite),
        *(_remove, _repeat, _blank),
    ]
    changed = bytearray(data)
    done = [rng.choice(ways)(changed, rng, other) for _ in range(rng.choice((1, 1, 1, 2, 4)))]
    return bytes(changed), "; ".join(done)


def _place(data: bytearray, rng: random.Random) -> int:
    """Anywhere, but rather in the header or the footer, where numbers mean more."""
    if not data:
        return 0
    near = min(len(data), 96)
    return rng.choice(
        (rng.randrange(len(data)), rng.randrange(near), len(data) - 1 - rng.randrange(near), rng.randrange(len(data)))
    )


def _flip(data: bytearray, rng: random.Random, other: bytes) -> str:
    count = rng.choice((1, 1, 1, 2, 8, 64))
    for _ in range(count if data else 0):
        data[_place(data, rng)] ^= 1 << rng.randrange(8)
    return f"{count} bits flipped"


def _truncate(data: bytearray, rng: random.Random, other: bytes) -> str:
    keep = rng.choice((0, 1, len(data) // 2, max(0, len(data) - 1), rng.randrange(len(data) + 1)))
    del data[keep:]
    return f"cut to {keep} bytes"


def _extend(data: bytearray, rng: random.Random, other: bytes) -> str:
    count = rng.choice((1, 7, 4096, 10**6))
    data += rng.choice((bytes(count), rng.randbytes(count), bytes(data[:count]), other[:count]))
    return f"extended to {len(data)} bytes"


def _splice(data: bytearray, rng: random.Random, other: bytes) -> str:
    here, there = rng.randrange(len(data) + 1), rng.randrange(len(other) + 1)
    data[here:] = other[there:]
    return f"from byte {here} on, another file from {there} on"


def _overwrite(data: bytearray, rng: random.Random, other: bytes) -> str:
    """A number in the file's own words, little or big endian, made extreme."""
    letter = rng.choice("BHIQfd")
    order = rng.choice("<<<>")
    if letter in "fd":
        value: float = rng.choice(_REAL)
        word = struct.pack(order + "d", value) if letter == "d" or 1e38 < abs(value) < math.inf else b""
        word = word or struct.pack(order + "f", value)
    else:
        bits = 8 * struct.calcsize(letter)
        value = rng.choice((0, 1, 2 ** (bits - 1) - 1, 2 ** (bits - 1), 2**bits - 1, rng.getrandbits(bits)))
        word = struct.pack(order + letter, value)
    place = _place(data, rng) // len(word) * len(word) if rng.random() < 0.5 else _place(data, rng)
    data[place : place + len(word)] = word
    return f"{value!r} at byte {place}"


def _remove(data: bytearray, rng: random.Random, other: bytes) -> str:
    start = _place(data, rng)
    count = rng.choice((1, 4, 100, 5000))
    del data[start : start + count]
    return f"{count} bytes removed from {start} on"


def _repeat(data: bytearray, rng: random.Random, other: bytes) -> str:
    start = _place(data, rng)
    part = data[start : start + rng.choice((1, 8, 1000))]
    times = rng.choice((1, 3, 1000))
    data[start:start] = part * times
    return f"{len(part)} bytes at {start} repeated {times} times"


def _blank(data: bytearray, rng: random.Random, other: bytes) -> str:
    start = _place(data, rng)
    count = rng.choice((1, 8, 64, len(data)))
    data[start : start + count] = (rng.choice((b"\0", b"\xff")) * count)[: len(data) - start]
    return f"{count} bytes blanked from {start} on"


OUTSIDE = "../outside/precious.txt"
"""A file of the user's, which links in a stranger's folder may lead to."""

SPECIAL = (
    *("fifo", "folder", "link to itself", "link to nothing", "link to /dev/zero", "link outside", "sparse", "socket"),
    *("pickle", "pickle", "empty"),
)


def make_special(path: Path, rng: random.Random) -> str:
    """Puts something that is no plain file, or a pickle, in the place of a file; returns what."""
    if path.exists():
        path.unlink()
    what = rng.choice(SPECIAL)
    if what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "link to itself":
        path.symlink_to(path.name)
    elif what == "link to nothing":
        path.symlink_to("nothing/there")
    elif what == "link to /dev/zero":
        path.symlink_to("/dev/zero")
    elif what == "link outside":
        path.symlink_to(os.path.abspath(OUTSIDE))
    elif what == "empty":
        path.touch()
    elif what == "sparse":
        with path.open("wb") as file:
            file.truncate(6 << 30)  # no disk, but as much memory as it is long for whoever reads it whole
    elif what == "socket":
        os.mknod(path, 0o140600)
    else:
        path.write_bytes(rng.choice((PICKLED, _torch_pickle())))
    return what


def _torch_pickle() -> bytes:
    """What `torch.save` makes of harm."""
    file = io.BytesIO()
    torch.save({"weight": _Harm()}, file)
    return file.getvalue()
