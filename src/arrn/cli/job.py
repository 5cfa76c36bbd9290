"""`arrn job`: what `arrn reproduce` and `arrn sweep` start, once for each of their runs."""

from __future__ import annotations

import ctypes
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from arrn.cli.console import console, say

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def job(
    file: Annotated[Path, typer.Argument(help="The job's file.")],
    times: Annotated[bool, typer.Option("--times", help="Measure the times of a finished one.")] = False,
) -> None:
    """Carry out one run of `arrn reproduce` or `arrn sweep`.

    Example: arrn job runs/reproduce/cifar10/resnet18-seed0.job.json
    """
    _end_with_the_parent()
    from arrn.cli.progress import watch
    from arrn.experiments.jobs import carry_out, measure_times, read_job

    chosen = read_job(file)
    if times:
        say(f"result: {measure_times(chosen)}")
        return
    with watch(console) as watcher:
        say(f"result: {carry_out(chosen, watcher, say)}")


def _end_with_the_parent() -> None:
    """A supervisor that is killed cannot ask its runs to stop: Linux does it then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
