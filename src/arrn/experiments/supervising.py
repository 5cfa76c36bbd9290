"""Jobs as processes of their own, several at once: one that crashes does not take the others with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arrn.experiments.jobs import Job, write_job
from arrn.runs.run_folder import LOG
from arrn.training.log import read_log

CARRY_OUT = (sys.executable, "-m", "arrn", "job")
MEASURE_TIMES = (*CARRY_OUT, "--times")
_SECONDS_TO_STOP = 120.0  # to finish the step at hand and write a checkpoint


@dataclass
class JobProgress:
    """How far a job is.

    Attributes:
        job: which.
        state: "waiting", "training" (or "timing"), "evaluating", "finished", "failed" or "stopped".
        epoch: how many are done.
        accuracy: on the training set in the last epoch; None before.
        seconds_left: until training ends, from the epochs so far; None before.
        last_words: of a process that failed.
    """

    job: Job
    state: str = "waiting"
    epoch: int = 0
    accuracy: float | None = None
    seconds_left: float | None = None
    last_words: str = ""

    @property
    def epochs(self) -> int:
        """Of the whole run."""
        return self.job.settings.recipe.epochs

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


def supervise(
    jobs: Sequence[Job],
    at_once: int = 1,
    tell: Callable[[Sequence[JobProgress]], None] = lambda progress: None,
    every: float = 0.5,
    command: Sequence[str] = CARRY_OUT,
    doing: str = "training",
) -> list[JobProgress]:
    """Carries out jobs, `at_once` of them at a time, in their order; returns how each ended.

    An interruption (SIGINT; on the command line SIGTERM too) asks every process to stop, which they do with a
    checkpoint, waits for them, and is raised again.

    Args:
        jobs: what to carry out.
        at_once: how many processes.
        tell: told of the progress, again and again.
        every: seconds between two looks.
        command: what a process is, but for the job's file.
        doing: the state of a job whose process has begun.
    """
    progress = [JobProgress(job) for job in jobs]
    running: list[tuple[JobProgress, subprocess.Popen[bytes]]] = []
    waiting = list(progress)
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append((waiting[0], _start(waiting[0].job, at_once, command)))
                waiting.pop(0).state = doing
            for each, process in list(running):
                code = process.poll()
                each.look()
                if code is not None:
                    running.remove((each, process))
                    _end(each, code)
            tell(progress)
            if running:
                time.sleep(every)
    except BaseException:
        _stop(running)
        tell(progress)
        raise
    return progress


def _start(job: Job, at_once: int, command: Sequence[str]) -> subprocess.Popen[bytes]:
    write_job(job)
    threads = str(max(1, (os.cpu_count() or 1) // at_once))
    environment = {"OMP_NUM_THREADS": threads, "OMP_WAIT_POLICY": "passive"} | os.environ
    with job.output.open("ab") as output:
        return subprocess.Popen(
            [*command, str(job.file)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches this process only, which then asks the others to stop
        )


def _end(progress: JobProgress, code: int) -> None:
    progress.state = "failed" if code else "finished"
    progress.seconds_left = None
    if code:
        lines = progress.job.output.read_text(encoding="utf-8", errors="replace").splitlines()
        killed = [f"killed by {signal.Signals(-code).name}"] if code < 0 else []
        progress.last_words = "\n".join([*lines[-5:], *killed])


def _stop(running: Sequence[tuple[JobProgress, subprocess.Popen[bytes]]]) -> None:
    for _, process in running:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + _SECONDS_TO_STOP
    for progress, process in running:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        progress.look()
        progress.state = "stopped"
