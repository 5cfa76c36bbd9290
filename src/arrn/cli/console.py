"""Where commands write to: one console, wide enough for tables also when the output is a file."""

from __future__ import annotations

import os
import sys

from rich.console import Console
from rich.table import Table

__all__ = ["LEADS", "console", "print_wide", "say"]

LEADS = os.environ.get("RANK", "0") == "0"
"""Whether this process speaks and writes for all that `torchrun` started."""

console = Console(width=None if sys.stdout.isatty() else 110, quiet=not LEADS)


def print_wide(table: Table) -> None:
    """Prints a table of many columns: on a terminal as it fits, to a file as wide as it needs."""
    (console if console.is_terminal else Console(width=160, quiet=not LEADS)).print(table)


def say(text: str) -> None:
    """Prints a line as it is: paths and class names may hold what rich would take for markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
