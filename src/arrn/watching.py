"""How the progress of a run looks: a bar on a terminal, a table in a notebook, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from arrn.errors import plain
from arrn.runtime.elements import Markup, element, notebook_table

if TYPE_CHECKING:  # help and completion do not wait for torch
    from arrn.training import Watcher

_SECONDS_BETWEEN_PICTURES = 0.25  # of a notebook: each one goes through the browser


@contextmanager
def watch(console: Console) -> Iterator[Watcher]:
    """A watcher that suits where the output goes."""
    if not console.is_terminal:
        yield PlainProgress(console)
        return
    with TerminalProgress(console) as watcher:
        yield watcher


@contextmanager
def telling() -> Iterator[Teller]:
    """What shows a run that is called from Python: a watcher that also takes lines of text, by its method `say`."""
    if in_notebook():
        shown = NotebookProgress()
        try:
            yield shown
        finally:
            shown.end()
        return
    quiet = os.environ.get("RANK", "0") != "0"  # of the processes that torchrun started, one speaks
    with watch(Console(width=None if sys.stdout.isatty() else 110, force_jupyter=False, quiet=quiet)) as watcher:
        assert isinstance(watcher, PlainProgress | TerminalProgress)
        yield watcher


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, whose output is shown by a browser."""
    module = sys.modules.get("IPython")  # a kernel has imported it
    shell = None if module is None else module.get_ipython()
    return getattr(shell, "kernel", None) is not None


class PlainProgress:
    """A line for each epoch."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.clock = _Clock()

    def say(self, text: str) -> None:
        _print(self.console, text)

    def samples_seen(self, what: str, done: int, total: int) -> None:
        pass

    def epoch_begins(self, epoch: int, epochs: int, steps: int, first: int) -> None:
        self.clock.begin(epoch, epochs, steps, first)

    def step_done(self, step: int, loss: float, accuracy: float, examples_per_second: float) -> None:
        pass

    def epoch_ends(self, entry: Mapping[str, Any]) -> None:
        left = self.clock.left(self.clock.steps)
        _print(self.console, _epoch_line(entry, self.clock.epochs, left))


class TerminalProgress:
    """A bar for the epoch at hand, above it a line for each one done."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.clock = _Clock()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            transient=True,
        )

    def __enter__(self) -> TerminalProgress:
        self.bar.start()
        self.task = self.bar.add_task("", note="", visible=False)
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def say(self, text: str) -> None:
        _print(self.console, text)

    def samples_seen(self, what: str, done: int, total: int) -> None:
        self.bar.update(self.task, description=what, completed=done, total=total, visible=True)

    def epoch_begins(self, epoch: int, epochs: int, steps: int, first: int) -> None:
        self.clock.begin(epoch, epochs, steps, first)
        self.bar.reset(
            self.task,
            total=steps,
            completed=first,
            description=f"epoch {epoch} of {epochs}",
            note=f"{duration(self.clock.left(first))} left",
            visible=True,
        )

    def step_done(self, step: int, loss: float, accuracy: float, examples_per_second: float) -> None:
        note = _step_note(loss, accuracy, examples_per_second, self.clock.left(step))
        self.bar.update(self.task, completed=step, note=note)

    def epoch_ends(self, entry: Mapping[str, Any]) -> None:
        _print(self.console, _epoch_line(entry, self.clock.epochs, None))


class NotebookProgress:
    """One output of a cell that is drawn anew: what was said, a bar for the epoch at hand, a row for each one done.

    Made of HTML alone, in the colours of the notebook, so that nothing has to be installed, and a saved notebook shows
    the end. Where HTML is not shown, the lines of a terminal stand instead.
    """

    def __init__(self) -> None:
        self.clock = _Clock()
        self._said: list[str] = []
        self._done: list[Mapping[str, Any]] = []
        self._now: tuple[str, float, str] | None = None  # what is at work, its share that is done, a note
        self._handle: Any = None
        self._drawn = 0.0

    def say(self, text: str) -> None:
        self._said.append(plain(text))
        self._draw()

    def samples_seen(self, what: str, done: int, total: int) -> None:
        self._now = (what, done / max(total, 1), f"{done:,} of {total:,}")
        self._draw(at_once=False)

    def epoch_begins(self, epoch: int, epochs: int, steps: int, first: int) -> None:
        self.clock.begin(epoch, epochs, steps, first)
        self._now = (f"epoch {epoch} of {epochs}", first / max(steps, 1), f"{duration(self.clock.left(first))} left")
        self._draw(at_once=False)

    def step_done(self, step: int, loss: float, accuracy: float, examples_per_second: float) -> None:
        title = self._now[0] if self._now else ""
        note = _step_note(loss, accuracy, examples_per_second, self.clock.left(step))
        self._now = (title, step / max(self.clock.steps, 1), note)
        self._draw(at_once=False)

    def epoch_ends(self, entry: Mapping[str, Any]) -> None:
        self._done.append(entry)
        if entry["epoch"] == self.clock.epochs:
            self._now = None
        self._draw()

    def _draw(self, at_once: bool = True) -> None:
        now = time.monotonic()
        if not at_once and now - self._drawn < _SECONDS_BETWEEN_PICTURES:
            return
        self._drawn = now
        from IPython.display import display  # a kernel has it

        content = {"text/plain": self.text(), "text/html": self.html()}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def end(self) -> None:
        """Takes the bar away: nothing is at work any more."""
        if self._now is not None:
            self._now = None
            self._draw()

    def text(self) -> str:
        """What is shown, as lines."""
        lines = [_epoch_line(entry, self.clock.epochs, None) for entry in self._done]
        now = [] if self._now is None else [f"{self._now[0]}  {self._now[2]}"]
        return "\n".join([*self._said, *lines, *now])

    def html(self) -> Markup:
        """What is shown, as HTML."""
        said = [element("div", line, style="white-space: pre-wrap") for line in self._said]
        return element("div", *said, self._bar(), self._table(), style="line-height: 1.5")

    def _bar(self) -> Markup | None:
        if self._now is None:
            return None
        title, share, note = self._now
        bar = element("progress", max=1, value=f"{share:.3f}", style="width: 12em; margin: 0 .8em", aria_label=title)
        return element("div", title, bar, note, style="font-variant-numeric: tabular-nums; white-space: pre-wrap")

    def _table(self) -> Markup | None:
        if not self._done:
            return None
        validated = any("validation_accuracy" in entry for entry in self._done)
        header = ["epoch", "loss", "accuracy", *(["validation"] if validated else []), "examples/s", "seconds"]
        rows = [
            [
                f"{entry['epoch']}/{self.clock.epochs}",
                f"{entry['loss']:.3f}",
                f"{entry['accuracy']:.1%}",
                *([f"{entry['validation_accuracy']:.1%}"] if validated else []),
                f"{entry['examples_per_second']:,.0f}",
                f"{entry['seconds']:.1f}",
            ]
            for entry in reversed(self._done)
        ]
        table = notebook_table(header, rows, right=range(len(header)))
        return element("div", table, style="max-height: 20em; overflow-y: auto")


Teller: TypeAlias = PlainProgress | TerminalProgress | NotebookProgress
"""A watcher that also takes lines of text."""


class _Clock:
    """How long a run has left, from how long it took since it began or went on."""

    def __init__(self) -> None:
        self.began: float | None = None
        self.first = self.before = self.epochs = self.steps = 0

    def begin(self, epoch: int, epochs: int, steps: int, first: int) -> None:
        self.epochs, self.steps = epochs, steps
        self.before = (epoch - 1) * steps
        if self.began is None:
            self.began, self.first = time.monotonic(), self.before + first

    def left(self, step: int) -> float | None:
        done = self.before + step
        if self.began is None or done == self.first:
            return None
        return (time.monotonic() - self.began) / (done - self.first) * (self.epochs * self.steps - done)


def _print(console: Console, text: str) -> None:
    console.print(Text(plain(text)), highlight=False, soft_wrap=True)


def _step_note(loss: float, accuracy: float, examples_per_second: float, left: float | None) -> str:
    return f"loss {loss:.3f}  accuracy {accuracy:.1%}  {examples_per_second:,.0f} examples/s  {duration(left)} left"


def _epoch_line(entry: Mapping[str, Any], epochs: int, left: float | None) -> str:
    validation = f"  validation {entry['validation_accuracy']:.1%}" if "validation_accuracy" in entry else ""
    rest = f"  {duration(left)} left" if left else ""
    return (
        f"epoch {entry['epoch']:>{len(str(epochs))}}/{epochs}  loss {entry['loss']:.3f}  accuracy "
        f"{entry['accuracy']:.1%}{validation}  {entry['examples_per_second']:,.0f} examples/s  "
        f"{entry['seconds']:.1f} s{rest}"
    )


def duration(seconds: float | None) -> str:
    """Seconds as 1:02:03 or 2:03; those that are not known as "?"."""
    if seconds is None:
        return "?"
    whole = round(seconds)
    return (
        f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}" if whole >= 3600 else f"{whole // 60}:{whole % 60:02}"
    )
