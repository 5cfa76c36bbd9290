"""What came of a case, and what of many."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzzing.mutations import MARKUP, OUTSIDE
from fuzzing.subjects import TRAINING

GOOD = ("works", "refused")
MEMORY = 2 << 30  # above what an idle process has
PRECIOUS = "the user's own"
OWN = ("stdout", "stderr", "stack", "told.json", "mutation")
"""Files of a case beside the folder that it works in."""

_LONGEST = 3000  # characters of an error's line
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_WARNING = re.compile(r"^(\S+:\d+: )?(Runtime|Deprecation|Future|Syntax|Resource)Warning", re.MULTILINE)
_NO_MEMORY = re.compile(r"can't allocate memory|Unable to allocate|MemoryError|out of memory", re.IGNORECASE)


@dataclass(frozen=True)
class Verdict:
    """What came of a case.

    Attributes:
        seed, number: that it depends on.
        kind: of the file.
        use: what was done with it.
        repair: whether its checksums were made valid again.
        mutation: what was done to it.
        verdict: one of `GOOD`, or how it failed.
        detail: the error's line, or what else tells.
        place: where in the code, for a traceback or a hang.
        seconds: that it took.
        memory: at its peak, above that of an idle process.
    """

    seed: int
    number: int
    kind: str
    use: str
    repair: bool
    mutation: str
    verdict: str
    detail: str
    place: str
    seconds: float
    memory: int


def judge(
    work: Path, told: dict[str, Any], status: int, asked: bool, text: str, memory: int, use: str
) -> tuple[str, str, str]:
    """The verdict, what tells of it, and the place."""
    stack = re.findall(r'File ".*?/src/(arrn/\S+)", line (\d+)', read(work.parent / "stack"))
    where = ":".join(stack[0]) if stack else ""
    lines = [line for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    if "broken" in told:
        return "broken fuzzer", str(told["broken"]).splitlines()[-1], ""
    if (work.parent / "canary").exists():
        return "code run", "", ""
    outside = {path.name: read(path) for path in (work.parent / "outside").iterdir()}
    strays = {path.name for path in work.parent.iterdir()} - {"work", "outside", *OWN}
    if told.get("outside") or strays or outside != {Path(OUTSIDE).name: PRECIOUS}:
        return "outside", "; ".join([*told.get("outside", []), *strays, *outside])[:300], ""
    if memory > MEMORY or _NO_MEMORY.search(f"{told.get('error', '')} {last}"):
        return "memory", f"{memory / 2**30:.1f} GB; {told.get('error', last)}"[:300], str(told.get("place", where))
    if asked and not (use in TRAINING and "stopped by SIGTERM" in text):
        return "hang", last[:200], where
    if os.WIFSIGNALED(status) or not told:
        return "crash", f"status {os.waitstatus_to_exitcode(status)}; {last[:200]}", where
    if "error" in told:
        return "traceback", str(told["error"]), str(told["place"])
    if "Traceback (most recent call last)" in text:
        return "traceback", last[:300], ""
    if found := _CONTROLS.search(text):
        line = next(line for line in text.split("\n") if found.group() in line)
        return "escape", f"{unicodedata.name(found.group(), repr(found.group()))} in {line!r:.200}", ""
    if pages := [page.name for page in (*work.rglob("*.html"), *work.glob("card.md")) if MARKUP in read(page)]:
        return "escape", f"markup of a stranger in {pages[0]!r:.80}", ""
    if found := _WARNING.search(text):
        return "untidy", found.group(), ""
    if "UNNOTICED" in text:
        return "unnoticed", last[:200], ""
    if told["code"] == 0 or asked:
        return "works", last[:200], ""
    if told["code"] not in (1, 2) or not last.startswith(("arrn: ", "arrn-runtime: ")) or len(last) > _LONGEST:
        return "untidy", f"exit {told['code']}, {len(last)} characters: {last[:200]}", ""
    return "refused", last[:300], ""


def has_checksum(work: Path) -> bool:
    """Whether the config of a case's network holds a checksum of its weights."""
    config = work / "net" / "config.json"
    return config.is_file() and re.search(r'"[0-9a-f]{64}"', read(config)) is not None


def look_for_damage(work: Path, before: dict[str, bytes]) -> tuple[str, str]:
    """Weights that differ from what their checksum is of, and yet were taken."""
    path = work / "net" / "model.safetensors"
    same = path.is_file() and path.read_bytes() == before["net/model.safetensors"]
    return ("works", "") if same else ("unnoticed", "weights differ from what their checksum is of")


def contents(work: Path) -> dict[str, bytes]:
    """The files of a case's network."""
    return {str(path.relative_to(work)): path.read_bytes() for path in work.glob("net/*") if path.is_file()}


def read(path: Path) -> str:
    """The beginning of a file as text; nothing where there is none."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return file.read(1 << 20).decode("utf-8", "replace")


def read_json(path: Path) -> dict[str, Any]:
    """A document; an empty one where there is none."""
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return {}


def table(verdicts: Sequence[Verdict]) -> str:
    """Counts by kind and verdict, in Markdown."""
    failures = sorted({v.verdict for v in verdicts} - set(GOOD))
    columns = ["cases", *GOOD, *failures]
    rows = [["file", *columns], ["---", *["---:"] * len(columns)]]
    counts = Counter((v.kind, v.verdict) for v in verdicts)
    for kind in [*dict.fromkeys(v.kind for v in verdicts), "all"]:
        those = {name: sum(n for (k, v), n in counts.items() if v == name and kind in (k, "all")) for name in columns}
        those["cases"] = sum(those.values())
        rows.append([kind, *(f"{those[name]:,}" for name in columns)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def in_a_line(verdict: Verdict) -> str:
    """A failure in a line that no terminal minds."""
    text = f"{verdict.seed}-{verdict.number} {verdict.kind}, {verdict.use}: {verdict.verdict} {verdict.place} "
    return ascii(text + f"{verdict.detail} [{verdict.mutation[:120]}]")[1:-1]
