"""Where commands write to: one console, wide enough for tables also when the output is a file."""

from __future__ import annotations

import sys

from rich.console import Console

__all__ = ["console"]

console = Console(width=None if sys.stdout.isatty() else 110)
