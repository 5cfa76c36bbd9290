"""What commands share: the console, and the values of flags."""

from __future__ import annotations

import json
import math
import os
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from arrn.errors import ArrnError, plain

LEADS = os.environ.get("RANK", "0") == "0"
"""Whether this process speaks and writes for all that `torchrun` started."""

Data = Annotated[
    str | None, typer.Option(help="The data set's root: a folder, or an address such as s3://bucket/folder.")
]
"""The flag --data of every command that reads a set."""

MaxPixels = Annotated[
    int | None,
    typer.Option(min=1, help="Refuse images with more pixels, or volumes with more voxels [default: 64 million]."),
]
"""The flag --max-pixels of every command that reads images."""

console = Console(width=None if sys.stdout.isatty() else 110, quiet=not LEADS)


def print_wide(table: Table) -> None:
    """Prints a table of many columns: on a terminal as it fits, to a file as wide as it needs."""
    (console if console.is_terminal else Console(width=160, quiet=not LEADS)).print(table)


def say(text: str) -> None:
    """Prints one line as it is: paths and class names may hold markup, escapes for the terminal, line breaks."""
    console.print(shown(text), highlight=False, soft_wrap=True)


def shown(text: object, style: str = "") -> Text:
    """What others may have written, for a table or a line: neither markup nor control characters act in it.

    >>> shown("[red]cat\\x1b[2J").plain
    '[red]cat\\\\x1b[2J'
    """
    return Text(plain(text), style)


def shown_lines(texts: Iterable[object]) -> Text:
    """Texts as `shown` makes them, one below the other."""
    return Text("\n").join(map(shown, texts))


def check_plot(plot: Path | None) -> None:
    """Refuses what `--plot` cannot draw to, before the work is done."""
    if plot is not None and plot.suffix not in (".png", ".svg"):
        raise ArrnError(f"--plot takes a file ending in .png or .svg, got {str(plot)!r}")


def whole_numbers(option: str, text: str | None) -> list[int]:
    """`32,16,8` as numbers, each at least 1."""
    if text is None:
        return []
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise ArrnError(
            f"{option} takes whole numbers of at least 1 with commas between, such as 32,16,8; got {text!r}"
        )
    return numbers


def numbers(option: str, text: str) -> list[float]:
    """`0.4,0.6` as numbers, each at least 0."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(math.isfinite(number) and number >= 0 for number in found):
        raise ArrnError(f"{option} takes numbers of at least 0 with commas between, such as 0.4,0.6; got {text!r}")
    return found


def assignments(option: str, texts: Sequence[str]) -> dict[str, Any]:
    """`name=value` pairs; values as TOML has them, or else plain text."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ArrnError(f"{option} takes name=value, got {text!r}")
        found[name.strip()] = _value(value)
    return found


def _value(text: str) -> Any:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
        json.dumps(value)  # what is kept with a run; TOML has dates besides
    except (ValueError, TypeError, RecursionError):
        return text.strip()
    return value
