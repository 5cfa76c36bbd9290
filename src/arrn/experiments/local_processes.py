"""Runs as processes of this machine: one that crashes does not take the others with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from arrn.experiments.jobs import Job, write_job
from arrn.experiments.supervising import LAST_LINES, SECONDS_TO_STOP, News

CARRY_OUT = (sys.executable, "-m", "arrn", "job")


class LocalProcesses:
    """A place for runs: each is a process of its own, on this machine.

    Args:
        at_once: how many run at a time; they share the GPU, and have the processor's cores in equal parts.
        command: what a process is, but for the job's file.
    """

    def __init__(self, at_once: int = 1, command: Sequence[str] = CARRY_OUT) -> None:
        self._at_once, self._command = at_once, command
        self._running: list[tuple[Job, subprocess.Popen[bytes]]] = []
        self._news: list[News] = []

    @property
    def slots(self) -> int:
        """How many runs there are at a time."""
        return self._at_once

    def start(self, job: Job, times: bool = False) -> None:
        """Starts the run's process, which writes what it has to say to the job's output."""
        write_job(job)
        threads = str(max(1, (os.cpu_count() or 1) // self._at_once))
        environment = {"OMP_NUM_THREADS": threads, "OMP_WAIT_POLICY": "passive"} | os.environ
        with job.output.open("ab") as output:
            process = subprocess.Popen(
                [*self._command, *(["--times"] if times else []), str(job.file)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches the supervisor only, which then asks the others to stop
            )
        self._running.append((job, process))
        self._news.append(News(job, "started"))

    def news(self) -> list[News]:
        """Which runs started and ended."""
        for job, process in list(self._running):
            code = process.poll()
            if code is not None:
                self._running.remove((job, process))
                self._news.append(News(job, "failed", _last_words(job, code)) if code else News(job, "finished"))
        news, self._news = self._news, []
        return news

    def stop(self) -> None:
        """Sends every process SIGTERM, waits for its checkpoint, and kills what takes too long."""
        for _, process in self._running:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + SECONDS_TO_STOP
        for _, process in self._running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()


def _last_words(job: Job, code: int) -> str:
    lines = job.output.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
    return "\n".join([*lines, *([f"killed by {signal.Signals(-code).name}"] if code < 0 else [])])
