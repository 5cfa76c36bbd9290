"""`arrn reproduce`, how it and `arrn sweep` carry out many jobs, and `arrn job`, the process of one of them."""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from arrn.cli.console import console, data_root, print_wide, say, shown
from arrn.cli.progress import board, watch
from arrn.datasets import REPRODUCED
from arrn.errors import RunError

if TYPE_CHECKING:  # help and completion do not wait for torch
    from arrn.experiments.jobs import Job
    from arrn.experiments.plan import PlannedRun
    from arrn.runs import Machine

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def reproduce(
    experiment: Annotated[
        str, typer.Argument(help="robustness, rivals, efficiency, generalization, ablation, frontier or all of them.")
    ],
    dataset: Annotated[str, typer.Option(help=f"{', '.join(REPRODUCED[:-1])} or {REPRODUCED[-1]}.")],
    *,
    data: Annotated[Path | None, typer.Option(help="The data set's root.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Train each network with this many seeds, from 0 on.")] = 1,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this run, or those of a pattern; repeatable.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at once; several share a GPU.")] = 1,
    epochs: Annotated[int | None, typer.Option(help="Instead of the paper's number.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for the runs.")] = Path("runs/reproduce"),
    results: Annotated[Path, typer.Option(help="The folder for the results, a small file each.")] = Path("results"),
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    compiled: Annotated[bool, typer.Option("--compile", help="Train through torch.compile.")] = False,
    list_: Annotated[bool, typer.Option("--list", "--dry-run", help="Only tell what there is to do.")] = False,
) -> None:
    """Train and evaluate the networks of the paper's experiments, and of rivals that it left out.

    Finished runs are skipped, interrupted ones go on. Each leaves a small JSON file in --results, which figures
    and tables are made from. For efficiency, inference is timed at the end, one network after the other.

    Examples:

    arrn reproduce robustness --dataset sample --epochs 1 --only arrn_small --results runs/try

    arrn reproduce all --dataset cifar10 --list

    arrn reproduce rivals --dataset cifar10 --data ~/data/cifar10 --jobs 4 --device cuda

    arrn reproduce ablation --dataset cifar10 --seeds 3 --only 'arrn_cifar10-*'
    """
    from arrn.experiments.plan import choose, plan
    from arrn.runs import Machine, pick_device

    pick_device(device)
    runs = choose(plan(dataset), experiment, only or [])
    machine = Machine(device, compiled=compiled)
    chosen = [
        _job(run, seed, dataset, data_root(data), epochs=epochs, out=out, results=results, machine=machine)
        for seed in range(seeds)
        for run in runs
    ]
    if list_:
        print_wide(job_table(chosen, f"{experiment} on {dataset}"))
        return
    to_do = [job for job in chosen if job.state() != "finished"]
    for job in chosen:
        if job not in to_do:
            say(f"{job.title}: finished before, skipped")
    failure = run_jobs(to_do, jobs)
    timed = {"efficiency", "frontier"} & ({experiment} if experiment != "all" else {"efficiency", "frontier"})
    if timed:
        untimed = [job for job in chosen if timed & set(job.experiments) and _is_untimed(job)]
        failure = run_jobs(untimed, 1, timing=True) or failure
    say(f"results: {results / dataset}")
    if failure is not None:
        raise failure


def _job(
    run: PlannedRun,
    seed: int,
    dataset: str,
    data: str | None,
    *,
    epochs: int | None,
    out: Path,
    results: Path,
    machine: Machine,
) -> Job:
    from arrn.experiments.jobs import Job
    from arrn.runs import RunSettings
    from arrn.training import recipe_for

    recipe = recipe_for(dataset).with_options(run.recipe)
    if epochs is not None:  # a shorter run warms up for as large a part of it
        recipe = recipe.with_options({"warm_up": recipe.warm_up * epochs / recipe.epochs, "epochs": epochs})
    settings = RunSettings(dataset, run.model, run.options, recipe, seed, data=data)
    again = f"arrn reproduce {run.experiments[0]} --dataset {dataset} --only {run.name} --seeds {seed + 1}"
    command = again + ("" if epochs is None else f" --epochs {epochs}")
    return Job(
        run.name,
        settings,
        out.resolve(),
        results.resolve(),
        experiments=run.experiments,
        machine=machine,
        command=command,
    )


def _is_untimed(job: Job) -> bool:
    result = job.read_result()
    return result is not None and not result.timings


def job_table(jobs: Sequence[Job], title: str) -> Table:
    """A row for each job: what it is and how far."""
    table = Table(title=shown(title, "table.title"))
    for column in ("run", "model", "experiments", "epochs", "state"):
        # Names of designs may be longer than a terminal is wide: they fold, so that the rest is seen.
        short = column in ("epochs", "state")
        table.add_column(column, justify="right" if column == "epochs" else "left", no_wrap=short, overflow="fold")
    for job in jobs:
        cells = (job.title, job.settings.model, ", ".join(job.experiments))
        table.add_row(*map(shown, cells), str(job.settings.recipe.epochs), job.state())
    return table


def run_jobs(jobs: Sequence[Job], at_once: int, timing: bool = False) -> RunError | None:
    """Carries out jobs, or measures the times of finished ones; shows how, says what failed and where it told why.

    Returns:
        What to raise in the end, when some failed: what the others left is of use all the same.
    """
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
        for line in progress.last_words.splitlines():
            say(f"    {line}")
    names = ", ".join(progress.job.title for progress in failed)
    wrong = f"{len(failed)} of {len(jobs)} runs failed: {names}; the same command tries them again"
    return RunError(wrong) if failed else None


def job(
    file: Annotated[Path, typer.Argument(help="The job's file.")],
    times: Annotated[bool, typer.Option("--times", help="Measure the times of a finished one.")] = False,
) -> None:
    """Carry out one run of `arrn reproduce` or `arrn sweep`.

    Example: arrn job runs/reproduce/cifar10/resnet18-seed0.job.json
    """
    _end_with_the_parent()
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
