"""How `arrn reproduce` and `arrn sweep` carry out many runs, here or on a cluster; `arrn job`, the process of one."""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from arrn.cli.console import console, print_wide, say, shown
from arrn.cli.progress import board
from arrn.errors import ArrnError, RunError
from arrn.watching import watch

if TYPE_CHECKING:  # help and completion do not wait for torch
    from arrn.experiments.jobs import Job
    from arrn.experiments.supervising import JobProgress, More, Place

JobsAtOnce = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="How many runs work at the same time; several share a GPU [default: 1; on a cluster as many as fit].",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="auto|HOST:PORT",
        help="Run on a Ray cluster: auto for the cluster of this machine, or the address of the cluster's head.",
    ),
]
JobsPerGpu = Annotated[int | None, typer.Option(min=1, help="On a cluster: how many runs share a GPU [default: 1].")]
CpusPerJob = Annotated[int | None, typer.Option(min=1, help="On a cluster: cores for each run [default: 1].")]
StorageAddress = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="ADDRESS",
        help="On a cluster without shared folders: the address where runs are kept, such as s3://bucket/runs.",
    ),
]
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True)
class Fleet:
    """Where many runs are carried out, as the command line says.

    Attributes:
        at_once: the most runs at a time.
        cluster: "auto", or the address of a Ray cluster; None is this machine.
        jobs_per_gpu, cpus_per_job: on a cluster.
        storage: an address of fsspec, for a cluster without shared folders.
        device: that runs use.
    """

    at_once: int | None
    cluster: str | None
    jobs_per_gpu: int | None
    cpus_per_job: int | None
    storage: str | None
    device: str

    def __post_init__(self) -> None:
        of_a_cluster = {
            "--jobs-per-gpu": self.jobs_per_gpu,
            "--cpus-per-job": self.cpus_per_job,
            "--storage": self.storage,
        }
        for option, value in of_a_cluster.items():
            if self.cluster is None and value is not None:
                raise ArrnError(
                    f"{option} {value} is for --cluster; on one machine --jobs says how many runs there are"
                )

    def check_device(self) -> None:
        """Refuses a device that is not there; those of a cluster are looked at when it is connected."""
        from arrn.errors import unknown_name
        from arrn.runs import DEVICES, pick_device

        if self.cluster is None:
            pick_device(self.device)
        elif self.device not in DEVICES:
            raise unknown_name("device", self.device, DEVICES)

    @contextmanager
    def _place(self, jobs: Sequence[Job], times: bool) -> Iterator[Place]:
        from arrn.experiments.local_processes import LocalProcesses

        at_once = 1 if times else self.at_once
        if self.cluster is None:
            yield LocalProcesses(at_once or 1)
            return
        from arrn.experiments.cluster import Needs, on_cluster
        from arrn.experiments.run_storage import Storage

        needs = Needs(self.device, 1 if times else self.jobs_per_gpu or 1, self.cpus_per_job or 1, at_once)
        storage = None if self.storage is None else Storage(self.storage)
        with on_cluster(self.cluster, needs, jobs, storage) as place:
            yield place

    def carry_out(self, jobs: Sequence[Job], *, times: bool = False, more: More | None = None) -> RunError | None:
        """Carries out jobs, shows how far they are, says what failed and where the run told why.

        Args:
            jobs: what to carry out.
            times: measure the times of finished runs, one after the other, instead of training them.
            more: gives jobs to carry out besides, see `supervise`; on the same data, in the same folders.

        Returns:
            What to raise in the end, when some failed: what the others left is of use all the same.
        """
        from arrn.data import open_dataset
        from arrn.experiments.supervising import no_more, supervise

        if not jobs:
            return None
        try:
            with self._place(jobs, times) as place:
                if self.cluster is None:
                    # What has to be downloaded is, once, before several processes would do it at the same time.
                    for dataset, data in {(job.settings.dataset, job.settings.data) for job in jobs}:
                        open_dataset(dataset, data)
                slots = place.slots if more else min(place.slots, len(jobs))
                what = "a search" if more else f"{len(jobs)} to {'time' if times else 'train and evaluate'}"
                say(f"{what}, {slots} at once{self._where()}")
                with board(console) as tell:
                    ended = supervise(place, jobs, tell, more=more or no_more, times=times)
        except KeyboardInterrupt:
            say("stopped, with checkpoints: the same command continues")
            raise
        return _tell_failures(ended)

    def _where(self) -> str:
        from arrn.experiments.cluster_connection import named

        return "" if self.cluster is None else f", on {named(self.cluster)}"


def _tell_failures(ended: Sequence[JobProgress]) -> RunError | None:
    failed = [progress for progress in ended if progress.state == "failed"]
    for progress in failed:
        say(f"{progress.job.title} failed; the end of {progress.job.output}:")
        for line in progress.last_words.splitlines():
            say(f"    {line}")
    names = ", ".join(progress.job.title for progress in failed)
    wrong = f"{len(failed)} of {len(ended)} runs failed: {names}; the same command tries them again"
    return RunError(wrong) if failed else None


def list_jobs(jobs: Sequence[Job], title: str) -> None:
    """Prints a row for each job: what it is and how far; below, what differs where there is a run of other settings."""
    table = Table(title=shown(title, "table.title"))
    for column in ("run", "model", "experiments", "epochs", "state"):
        # Names of designs may be longer than a terminal is wide: they fold, so that the rest is seen.
        short = column in ("epochs", "state")
        table.add_column(column, justify="right" if column == "epochs" else "left", no_wrap=short, overflow="fold")
    reasons = []
    for job in jobs:
        try:
            state = job.state()
        except ArrnError as error:
            state = "differs"
            reasons.append(f"{job.title} differs: {error}")
        cells = (job.title, job.settings.model, ", ".join(job.experiments))
        table.add_row(*map(shown, cells), str(job.settings.recipe.epochs), state)
    print_wide(table)
    for reason in reasons:
        say(reason)


def job(
    file: Annotated[Path, typer.Argument(help="The job's file.")],
    times: Annotated[bool, typer.Option("--times", help="Measure the times of a finished run.")] = False,
    storage: Annotated[str | None, typer.Option(help="Where the run is kept, if not in the job's folder.")] = None,
    patience: Annotated[float, typer.Option(help="Seconds to wait for another process at work on the run.")] = 0.0,
) -> None:
    """Carry out one run of `arrn reproduce` or `arrn sweep`.

    Example: arrn job runs/reproduce/cifar10/resnet18-seed0.job.json
    """
    _end_with_the_parent()
    from arrn.experiments.jobs import carry_out, measure_times, read_job
    from arrn.experiments.run_storage import Storage, kept_in

    chosen = read_job(file)
    with ExitStack() as kept:
        here = chosen if storage is None else kept.enter_context(kept_in(Storage(storage), chosen))
        if times:
            say(f"result: {measure_times(here)}")
            return
        with watch(console) as watcher:
            say(f"result: {carry_out(here, watcher, say, patience)}")


def _end_with_the_parent() -> None:
    """A supervisor that is killed cannot ask its runs to stop: Linux does it then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
