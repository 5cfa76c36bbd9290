"""Many runs at the same time: their order, their progress and their common stop. A `Place` decides where they run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from arrn.experiments.jobs import Job
from arrn.runs.run_folder import LOG
from arrn.training.log import read_log

SECONDS_TO_STOP = 120.0
"""How long a run that is asked to stop may take to finish the step at hand and write a checkpoint."""

LAST_LINES = 5
"""Lines of a failed run's output that are shown."""


@dataclass(frozen=True)
class News:
    """An event of a run.

    Attributes:
        job: which run.
        kind: "started", "lost" (its machine died; the run waits for another machine), "finished" or "failed".
        text: the machine where the run started, the reason why it was lost, or its last lines where it failed.
    """

    job: Job
    kind: Literal["started", "lost", "finished", "failed"]
    text: str = ""


class Place(Protocol):
    """Where runs are carried out: the processors of this machine, or a cluster."""

    @property
    def slots(self) -> int:
        """The number of runs that it carries out at the same time."""

    def start(self, job: Job, times: bool = False) -> None:
        """Takes a run; it starts at once, or when a machine is free.

        Args:
            job: the run.
            times: measure the times of a finished run, instead of training it.
        """

    def news(self) -> list[News]:
        """The events since the last call. Does not wait."""

    def stop(self) -> None:
        """Asks every run to stop and waits until each has written a checkpoint and ended."""


@dataclass
class JobProgress:
    """The progress of a job.

    Attributes:
        job: which.
        state: "waiting", "training" (or "timing"), "evaluating", "finished", "failed" or "stopped".
        epoch: how many are done.
        accuracy: on the training set in the last epoch; None before.
        seconds_left: until training ends, from the epochs so far; None before.
        last_words: of a run that failed.
        machine: which machine of a cluster it is on; "" on this one.
        losses: how often its machine died.
    """

    job: Job
    state: str = "waiting"
    epoch: int = 0
    accuracy: float | None = None
    seconds_left: float | None = None
    last_words: str = ""
    machine: str = ""
    losses: int = 0

    @property
    def epochs(self) -> int:
        """Of the whole run."""
        return self.job.settings.recipe.epochs

    @property
    def ended(self) -> bool:
        """Whether the job has ended, in whatever way."""
        return self.state in ("finished", "failed", "stopped")

    def look(self) -> None:
        """Reads the run's log."""
        entries = read_log(self.job.folder / LOG)
        if not entries:
            return
        self.epoch, self.accuracy = entries[-1]["epoch"], entries[-1].get("accuracy")
        each = sum(entry.get("seconds", 0) for entry in entries) / len(entries)
        self.seconds_left = each * (self.epochs - self.epoch)
        if self.state == "training" and self.epoch >= self.epochs:
            self.state = "evaluating"

    def take(self, news: News, doing: str) -> None:
        """Changes the state as the news say; `doing` is that of a run that has started."""
        self.look()
        if news.kind == "started":
            self.state, self.machine = doing, news.text
        elif news.kind == "lost":
            self.state, self.machine, self.losses = "waiting", "", self.losses + 1
        else:
            self.state, self.seconds_left = news.kind, None
            self.last_words = news.text


Tell = Callable[[Sequence[JobProgress]], None]
More = Callable[[Sequence[JobProgress], int], Iterable[Job]]


def no_more(ended: Sequence[JobProgress], room: int) -> Iterable[Job]:
    """For those who know all of their jobs from the start."""
    return ()


def supervise(
    place: Place,
    jobs: Sequence[Job],
    tell: Tell = lambda progress: None,
    *,
    more: More = no_more,
    every: float = 0.5,
    times: bool = False,
) -> list[JobProgress]:
    """Carries out jobs in their order, as many at once as the place has slots; returns the final state of each.

    An interruption (SIGINT; on the command line SIGTERM too) asks every run to stop, which they do with a
    checkpoint, waits for them, and is raised again.

    Args:
        place: carries out the runs.
        jobs: the jobs to carry out.
        tell: called with the progress, again and again.
        more: gives further jobs. Called at the start and when jobs have ended, with the ended jobs and with the number
            of runs that could start now.
        every: seconds between two looks at the runs.
        times: whether to measure the times of finished runs, instead of training.
    """
    progress = [JobProgress(job) for job in jobs]
    waiting, running, ended = list(progress), list[JobProgress](), list[JobProgress]()
    doing = "timing" if times else "training"
    try:
        while True:
            if ended or not running:
                added = [JobProgress(job) for job in more(ended, place.slots - len(running) - len(waiting))]
                progress, waiting = [*progress, *added], [*waiting, *added]
            if not (waiting or running):
                break
            while waiting and len(running) < place.slots:
                running.append(waiting.pop(0))
                place.start(running[-1].job, times)
            for news in place.news():
                next(each for each in running if each.job.folder == news.job.folder).take(news, doing)
            for each in running:
                if each.state != "waiting" and not each.ended:
                    each.look()
            ended = [each for each in running if each.ended]
            running = [each for each in running if not each.ended]
            tell(progress)
            if running:
                time.sleep(every)
    except BaseException:
        place.stop()
        for each in running:
            each.look()
            each.state = "stopped"
        tell(progress)
        raise
    return progress
