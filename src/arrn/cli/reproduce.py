"""`arrn reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arrn.cli.console import Data, say
from arrn.cli.fleet import Cluster, CpusPerJob, Fleet, JobsAtOnce, JobsPerGpu, StorageAddress, list_jobs
from arrn.datasets import REPRODUCED

if TYPE_CHECKING:  # help and completion do not wait for torch
    from arrn.experiments.jobs import Job
    from arrn.experiments.plan import PlannedRun
    from arrn.runs import Machine

_TIMES = ("after", "never", "only")


def reproduce(
    experiment: Annotated[
        str, typer.Argument(help="robustness, rivals, efficiency, generalization, ablation, frontier or all of them.")
    ],
    dataset: Annotated[str, typer.Option(help=f"{', '.join(REPRODUCED[:-1])} or {REPRODUCED[-1]}.")],
    *,
    data: Data = None,
    seeds: Annotated[int, typer.Option(min=1, help="Train each network with this many seeds.")] = 1,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of the seeds.")] = 0,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Only this run, or the runs that match a pattern such as 'arrn_*'; repeatable."
        ),
    ] = None,
    jobs: JobsAtOnce = None,
    cluster: Cluster = None,
    jobs_per_gpu: JobsPerGpu = None,
    cpus_per_job: CpusPerJob = None,
    storage: StorageAddress = None,
    epochs: Annotated[int | None, typer.Option(help="The number of epochs, instead of the recipe's own.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for the runs.")] = Path("runs/reproduce"),
    results: Annotated[Path, typer.Option(help="The folder for the results, a small file for each run.")] = Path(
        "results"
    ),
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    compiled: Annotated[bool, typer.Option("--compile", help="Train through torch.compile.")] = False,
    checkpoint_every: Annotated[
        float | None,
        typer.Option(help="Epochs between checkpoints [default: one each half minute or epoch, whichever is longer]."),
    ] = None,
    times: Annotated[
        str,
        typer.Option(
            help="When inference is timed, which nothing else on the machine should disturb: after all training has "
            "ended, never, or only, which trains nothing."
        ),
    ] = "after",
    list_: Annotated[bool, typer.Option("--list", "--dry-run", help="Only show the runs and their state.")] = False,
) -> None:
    """Train and evaluate the networks of the paper's experiments, and rivals that the paper left out.

    Finished runs are skipped and interrupted runs continue. Each run leaves a small JSON file in --results; figures and
    tables are made from these files. For efficiency, inference is timed at the end, one network after the other; with
    --times never, in another call with --times only.

    Examples:

    arrn reproduce robustness --dataset sample --epochs 1 --only arrn_small --results runs/try

    arrn reproduce all --dataset cifar10 --list

    arrn reproduce rivals --dataset cifar10 --data ~/data/cifar10 --jobs 4 --device cuda

    arrn reproduce rivals --dataset cifar10 --data /shared/cifar10 --cluster auto --jobs-per-gpu 4

    arrn reproduce ablation --dataset cifar10 --seeds 3 --only 'arrn_cifar10-*'
    """
    from arrn.data import data_root
    from arrn.errors import unknown_name
    from arrn.experiments.plan import choose, plan
    from arrn.runs import Machine

    if times not in _TIMES:
        raise unknown_name("choice of --times", times, _TIMES)
    fleet = Fleet(jobs, cluster, jobs_per_gpu, cpus_per_job, storage, device)
    fleet.check_device()
    runs = choose(plan(dataset), experiment, only or [])
    machine = Machine(device, checkpoint_every=checkpoint_every, compiled=compiled)
    chosen = [
        _job(run, seed, dataset, data_root(data), epochs=epochs, out=out, results=results, machine=machine)
        for seed in range(first_seed, first_seed + seeds)
        for run in runs
    ]
    if list_:
        list_jobs(chosen, f"{experiment} on {dataset}")
        return
    failure = None
    if times != "only":
        to_do = [job for job in chosen if job.state() != "finished"]
        for job in chosen:
            if job not in to_do:
                say(f"{job.title}: finished before and skipped")
        failure = fleet.carry_out(to_do)
    timed = {"efficiency", "frontier"} & ({experiment} if experiment != "all" else {"efficiency", "frontier"})
    if timed and times != "never":
        untimed = [job for job in chosen if timed & set(job.experiments) and _is_untimed(job)]
        failure = fleet.carry_out(untimed, times=True) or failure
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
    from arrn.experiments.plan import settings_of

    settings = settings_of(run, dataset, seed, data, epochs)
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
