"""The command line. Each command is a file of its own; `app` gathers them."""

from __future__ import annotations

import sys

from arrn.errors import ArrnError, RunError

__all__ = ["main"]


def main() -> None:
    """Runs the command line. It exits with 0 when done, 1 when a run failed, 2 for bad input; errors are one line."""
    try:
        from arrn.cli.app import app
    except ModuleNotFoundError as error:
        sys.stderr.write(f"arrn: the command line needs {error.name}: pip install 'arrn[train]'\n")
        sys.exit(2)
    try:
        app()
    except ArrnError as error:
        sys.stderr.write(f"arrn: {' '.join(str(error).split())}\n")
        sys.exit(1 if isinstance(error, RunError) else 2)
    except KeyboardInterrupt:
        sys.stderr.write("arrn: interrupted\n")
        sys.exit(1)
