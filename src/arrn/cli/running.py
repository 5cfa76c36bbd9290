"""What `arrn reproduce` and `arrn sweep` share: jobs that are skipped, resumed, watched and told of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from arrn.cli.console import console, say
from arrn.errors import RunError

if TYPE_CHECKING:  # help and completion do not wait for torch
    from arrn.experiments.jobs import Job


def job_table(jobs: Sequence[Job], title: str) -> Table:
    """A row for each job: what it is and how far."""
    table = Table(title=escape(title))
    for column in ("run", "model", "experiments", "epochs", "state"):
        # Names of designs may be longer than a terminal is wide: they fold, so that the rest is seen.
        short = column in ("epochs", "state")
        table.add_column(column, justify="right" if column == "epochs" else "left", no_wrap=short, overflow="fold")
    for job in jobs:
        cells = (job.title, job.settings.model, ", ".join(job.experiments))
        table.add_row(*map(escape, cells), str(job.settings.recipe.epochs), job.state())
    return table


def run_jobs(jobs: Sequence[Job], at_once: int, timing: bool = False) -> RunError | None:
    """Carries out jobs, or measures the times of finished ones; shows how, says what failed and where it told why.

    Returns:
        What to raise in the end, when some failed: what the others left is of use all the same.
    """
    from arrn.cli.board import board
    from arrn.data import open_dataset
    from arrn.experiments.supervising import CARRY_OUT, MEASURE_TIMES, supervise

    if not jobs:
        return None
    say(f"{len(jobs)} to {'time' if timing else 'train and evaluate'}, {min(at_once, len(jobs))} at once")
    # What has to be downloaded is, once, before several processes would do it at the same time.
    for dataset, data in {(job.settings.dataset, job.settings.data) for job in jobs}:
        open_dataset(dataset, data)
    try:
        with board(console) as tell:
            command, doing = (MEASURE_TIMES, "timing") if timing else (CARRY_OUT, "training")
            ended = supervise(jobs, at_once, tell, command=command, doing=doing)
    except KeyboardInterrupt:
        say("stopped, with checkpoints: the same command goes on")
        raise
    failed = [progress for progress in ended if progress.state == "failed"]
    for progress in failed:
        say(f"{progress.job.title} failed; the end of {progress.job.output}:")
        say("".join(f"    {line}\n" for line in progress.last_words.splitlines()).rstrip("\n"))
    names = ", ".join(progress.job.title for progress in failed)
    wrong = f"{len(failed)} of {len(jobs)} runs failed: {names}; the same command tries them again"
    return RunError(wrong) if failed else None
