"""How the progress of a run looks, and of many at once: bars and a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from arrn.cli.console import shown

if TYPE_CHECKING:  # help and completion do not wait for torch
    from arrn.experiments.supervising import JobProgress
    from arrn.training import Watcher

_SECONDS_BETWEEN_LINES = 30.0
_LINES_AROUND = 7  # title, head, frame, caption, and the line below
_MOST_TELLING = ("training", "evaluating", "timing", "failed", "stopped", "waiting", "finished")
_STYLES = {
    "training": "bold",
    "evaluating": "bold",
    "timing": "bold",
    "finished": "green",
    "failed": "red",
    "stopped": "yellow",
}


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


@contextmanager
def board(console: Console) -> Iterator[Callable[[Sequence[JobProgress]], None]]:
    """What is to be told of the progress, to suit where the output goes."""
    if not console.is_terminal:
        yield _BoardLines(console)
        return
    with Live(console=console, refresh_per_second=4) as live:
        yield lambda progress: live.update(progress_table(progress, max(1, console.height - _LINES_AROUND)))


def progress_table(progress: Sequence[JobProgress], room: int | None = None) -> Table:
    """A row for each run; where there is not `room` for all of them, those that something happens to come first."""
    ended = sum(each.state in ("finished", "failed") for each in progress)
    table = Table(title=f"{ended} of {len(progress)} runs ended", caption="accuracy: on the training set")
    if room is not None and len(progress) > room:
        progress = sorted(progress, key=lambda each: _MOST_TELLING.index(each.state))[:room]
    on_cluster = any(each.machine or each.losses for each in progress)
    for column in ("run", "state", "epoch", "accuracy", "left", *(["machine"] if on_cluster else [])):
        table.add_column(column, justify="left" if column in ("run", "state", "machine") else "right", no_wrap=True)
    for each in progress:
        accuracy = "" if each.accuracy is None else f"{each.accuracy:.1%}"
        left = duration(each.seconds_left) if each.state == "training" else ""
        style = _STYLES.get(each.state, "dim")
        epoch = f"{each.epoch}/{each.epochs}"
        machine = [shown(each.machine or _lost(each))] if on_cluster else []
        table.add_row(shown(each.job.title), each.state, epoch, accuracy, left, *machine, style=style)
    return table


class _BoardLines:
    """A line when a run changes its state, and now and then one on how far it is."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.told: dict[str, tuple[str, int, float]] = {}

    def __call__(self, progress: Sequence[JobProgress]) -> None:
        for each in progress:
            state, epoch, when = self.told.get(each.job.title, ("waiting", 0, 0.0))
            due = each.epoch > epoch and time.monotonic() - when > _SECONDS_BETWEEN_LINES
            if each.state != state or due:
                self.told[each.job.title] = (each.state, each.epoch, time.monotonic())
                self.console.print(shown(_board_line(each)), highlight=False, soft_wrap=True)


def _board_line(progress: JobProgress) -> str:
    accuracy = "" if progress.accuracy is None else f"  accuracy {progress.accuracy:.1%}"
    training = progress.state == "training" and progress.seconds_left is not None
    left = f"  {duration(progress.seconds_left)} left" if training else ""
    where = _lost(progress) if progress.state == "waiting" else f"on {progress.machine}" if progress.machine else ""
    state = f"{progress.state} {where}".strip()
    return f"{progress.job.title}: {state}  epoch {progress.epoch}/{progress.epochs}{accuracy}{left}"


def _lost(progress: JobProgress) -> str:
    return "for another machine" if progress.losses and not progress.ended else ""
