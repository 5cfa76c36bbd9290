"""The errors a user can cause, each with the value and what would be right; how what strangers wrote is shown."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class ArrnError(ValueError):
    """Base of every error that a user of ``arrn`` can cause; the command line prints it in one line."""


class RunError(ArrnError):
    """A run that began well and could not go on: a full disk, a loss that is no number, an interruption.

    On the command line it exits with 1, other errors with 2.
    """


class ConstancyError(ArrnError):
    """A block's answer to a zero input is not constant over space, so its residual cannot be skipped.

    Attributes:
        submodule: the dotted name of the offending submodule ("" is the block itself).
        deviation: how far the output of this submodule strays from a constant, relative to its largest value.
    """

    def __init__(self, message: str, submodule: str, deviation: float) -> None:
        super().__init__(message)
        self.submodule = submodule
        self.deviation = deviation


def unknown_name(kind: str, name: object, choices: Iterable[str]) -> ArrnError:
    """The error for a name that is not among `choices`, with the nearest match where there is one."""
    known = sorted(choices)
    nearest = difflib.get_close_matches(str(name)[:80], known, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    return ArrnError(f"unknown {kind} {name!r:.80}{hint} (known: {', '.join(map(repr, known))})")


def missing_package(what: str, package: str | None, extra: str = "train") -> ArrnError:
    """The error for a package that is not installed, and that an extra of this library brings.

    >>> print(missing_package("reading pictures", "pillow"))
    reading pictures needs pillow: pip install '.[train]' in a clone of the repository
    """
    if not __name__.startswith("arrn."):  # in `arrn-runtime`, which has an extra for its server alone
        place = f"arrn-runtime[{extra}]" if extra == "serve" else package
        return ArrnError(f"{what} needs {package}: pip install '{place}'")
    return ArrnError(f"{what} needs {package}: pip install '.[{extra}]' in a clone of the repository")


@contextmanager
def needs(package: str, what: str, extra: str = "train") -> Iterator[None]:
    """Around an import: turns a missing package into an error that says how to get it.

    >>> with needs("numpy", "reading pictures"):
    ...     import numpy
    """
    try:
        yield
    except ImportError as error:
        # A package that is there but broken is another matter, with a message of its own.
        if isinstance(error, ModuleNotFoundError):
            raise missing_package(what, package, extra) from None
        raise ArrnError(f"{what} needs {package}, which does not import: {error}") from error


LONGEST_SHOWN = 2000
"""Characters of one text that are shown, in an error or a cell; the middle of a longer one is left out."""

# Joiners that scripts and emoji need; every other character without a shape is shown as its escape.
_JOINERS = "\u200c\u200d"


def plain(text: object) -> str:
    """Text that others may have written, as one line without control characters, to be shown on a terminal.

    File names, class names and what a file says of itself may hold anything: escapes that move the cursor or set the
    title, line breaks, marks that turn the direction of writing, halves of characters that no encoding takes. They
    are shown as Python writes them.

    >>> print(plain("cat\\x1b]0;title\\x07\\n"))
    cat\\x1b]0;title\\x07\\n
    """
    shown = str(text)
    if len(shown) > LONGEST_SHOWN:
        shown = f"{shown[: LONGEST_SHOWN // 2]} ... {shown[-LONGEST_SHOWN // 2 :]}"
    return "".join(letter if _has_shape(letter) else repr(letter)[1:-1] for letter in shown)


def _has_shape(letter: str) -> bool:
    return letter.isprintable() or letter in _JOINERS or unicodedata.category(letter) == "Zs"


def first_line(error: BaseException) -> str:
    """What another library's error says, in one line: the first one, or the error's type where it says nothing.

    >>> first_line(ValueError("no such page\\nat byte 7")), first_line(RecursionError())
    ('no such page', 'RecursionError')
    """
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)
