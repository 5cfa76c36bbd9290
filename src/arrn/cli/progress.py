"""How the progress of a run looks: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from arrn.training import Watcher


@contextmanager
def watch(console: Console) -> Iterator[Watcher]:
    """A watcher that suits where the output goes."""
    if not console.is_terminal:
        yield PlainProgress(console)
        return
    with TerminalProgress(console) as watcher:
        yield watcher


class PlainProgress:
    """A line for each epoch."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.clock = _Clock()

    def samples_seen(self, what: str, done: int, total: int) -> None:
        pass

    def epoch_begins(self, epoch: int, epochs: int, steps: int, first: int) -> None:
        self.clock.begin(epoch, epochs, steps, first)

    def step_done(self, step: int, loss: float, accuracy: float, examples_per_second: float) -> None:
        pass

    def epoch_ends(self, entry: Mapping[str, Any]) -> None:
        left = self.clock.left(self.clock.steps)
        self.console.print(_epoch_line(entry, self.clock.epochs, left), highlight=False, soft_wrap=True)


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
        left = duration(self.clock.left(step))
        note = f"loss {loss:.3f}  accuracy {accuracy:.1%}  {examples_per_second:,.0f} examples/s  {left} left"
        self.bar.update(self.task, completed=step, note=note)

    def epoch_ends(self, entry: Mapping[str, Any]) -> None:
        self.bar.console.print(_epoch_line(entry, self.clock.epochs, None), highlight=False, soft_wrap=True)


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
