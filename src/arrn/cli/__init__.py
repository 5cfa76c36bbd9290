"""The command line. Each command is a file of its own; `app` gathers them."""

from __future__ import annotations

import sys

from arrn.errors import ArrnError

__all__ = ["main"]


def main() -> None:
    """Runs the command line; bad input prints one line and exits with 2."""
    try:
        from arrn.cli.app import app
    except ModuleNotFoundError as error:
        sys.stderr.write(f"arrn: the command line needs {error.name}: pip install 'arrn[train]'\n")
        sys.exit(2)
    try:
        app()
    except ArrnError as error:
        sys.stderr.write(f"arrn: {' '.join(str(error).split())}\n")
        sys.exit(2)
