"""Where commands write to: one console, wide enough for tables also when the output is a file."""

from __future__ import annotations

import sys

from rich.console import Console

__all__ = ["console", "say"]

console = Console(width=None if sys.stdout.isatty() else 110)


def say(text: str) -> None:
    """Prints a line as it is: paths and class names may hold what rich would take for markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
