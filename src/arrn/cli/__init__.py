"""The command line. Each command is a file of its own; `app` gathers them."""

from __future__ import annotations

import io
import logging
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from arrn.errors import ArrnError, RunError, first_line, missing_package, plain
from arrn.malloc import keep_freed_memory

__all__ = ["main"]

_KILLED_BY_SIGINT = 130  # what typer makes of a KeyboardInterrupt


def main() -> None:
    """Runs the command line. It exits with 0 when done, 1 when a run failed, 2 for bad input; errors are one line."""
    try:
        import typer

        from arrn.cli.app import app
    except ModuleNotFoundError as error:
        _fail(str(missing_package("the command line", error.name)), 2)
    keep_freed_memory()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal or a file that does not take every letter
            stream.reconfigure(errors="backslashreplace")
    # What typer calls usage errors: it brings a click of its own, older versions use the package.
    usage_error: type[Exception] = typer.BadParameter.__mro__[1]
    try:
        with _terminated_as_interrupted(), _warned_plainly():
            code = app(prog_name="arrn", standalone_mode=False)
    except ArrnError as error:
        _fail(str(error), 1 if isinstance(error, RunError) else 2)
    except OSError as error:
        # One that names a file is about a path that was given; others, such as a full disk, stopped the work.
        where = "" if error.filename is None else f"{error.filename}: "
        _fail(f"{where}{error.strerror or error}", 2 if where else 1)
    except usage_error as error:
        message: str = error.format_message()  # type: ignore[attr-defined]
        if not message.strip() or "\n" in message:  # `arrn` alone: it is the help, which typer may have printed
            sys.stderr.write(_plain_lines(message))
            sys.exit(2)
        _fail(f"{message} (see {_command(error)} --help)", 2)
    except (MemoryError, RuntimeError) as error:
        # torch says so in words.
        if isinstance(error, RuntimeError) and not re.search("allocate memory|out of memory", str(error)):
            raise
        _fail(f"there is not enough memory for this: {first_line(error)}", 1)
    except (KeyboardInterrupt, typer.Abort):
        code = _KILLED_BY_SIGINT
    if code == _KILLED_BY_SIGINT:
        _fail("interrupted", 1)
    sys.exit(code or 0)


def _fail(message: str, code: int) -> NoReturn:
    sys.stderr.write(f"arrn: {plain(' '.join(message.split()))}\n")
    sys.exit(code)


def _plain_lines(text: str) -> str:
    return "\n".join(map(plain, text.split("\n")))


class _PlainFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return _plain_lines(super().format(record))


@contextmanager
def _warned_plainly() -> Iterator[None]:
    """Warnings, of which nobody but the terminal hears, name files and classes too."""

    def in_words(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        return f"{_plain_lines(f'{category.__name__}: {message}')}\n"

    handler, before = logging.lastResort, warnings.formatwarning
    warnings.formatwarning = in_words
    if handler is not None:
        handler.setFormatter(_PlainFormatter())
    try:
        with warnings.catch_warnings():
            # Pillow's word on large images, which are refused right after it.
            warnings.filterwarnings("ignore", "Image size .* decompression bomb")
            yield
    finally:
        warnings.formatwarning = before
        if handler is not None:
            handler.setFormatter(None)


def _command(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return "arrn" if context is None else str(context.command_path)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM does what SIGINT does: files are closed, processes ended, and the error is a line."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _end(number: int, frame: FrameType | None) -> None:
    """Lets a command that is ending by an error already say so: torchrun ends the others when one has failed."""
    if isinstance(sys.exception(), Exception):
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever asks twice does not want to wait
        return
    signal.default_int_handler(number, frame)
