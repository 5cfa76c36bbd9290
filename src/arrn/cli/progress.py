"""How the progress of many runs at once looks: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table

from arrn.cli.console import shown
from arrn.watching import duration

if TYPE_CHECKING:  # help and completion do not wait for torch
    from arrn.experiments.supervising import JobProgress

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
