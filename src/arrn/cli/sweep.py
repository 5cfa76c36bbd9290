"""`arrn sweep`."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arrn.cli.console import Data, numbers, say, whole_numbers
from arrn.cli.fleet import Cluster, CpusPerJob, Fleet, JobsAtOnce, JobsPerGpu, StorageAddress, list_jobs
from arrn.cli.standings import show_standings
from arrn.datasets import facts_of
from arrn.errors import ArrnError

if TYPE_CHECKING:  # help and completion do not wait for torch
    from arrn.experiments.jobs import Job
    from arrn.experiments.sweep import Axes, Range
    from arrn.models import Design


_Lists = list[str] | None


def sweep(
    dataset: Annotated[str, typer.Argument(help="A name such as sample or cifar10, or the path of a folder.")],
    *,
    sizes: Annotated[_Lists, typer.Option(help="The sizes of a ladder, such as 32,16,8; repeatable.")] = None,
    features: Annotated[_Lists, typer.Option(help="Channels at each size, such as 64,128,256; repeatable.")] = None,
    expansion: Annotated[
        _Lists, typer.Option(help="Hidden channels per feature: one number, or one for each size; repeatable.")
    ] = None,
    depth: Annotated[
        _Lists, typer.Option(help="Convolutions in a block: one number, or one for each size; repeatable.")
    ] = None,
    p: Annotated[
        str | None,
        typer.Option(help="Rates of Laplacian dropout, such as 0.4,0.6; with --trials also a range, such as 0.2:0.8."),
    ] = None,
    block: Annotated[
        str, typer.Option(help="The kind of block: inverted, zero_preserving, or both with a comma between.")
    ] = "inverted",
    blockless: Annotated[
        _Lists,
        typer.Option(
            help="Sizes without a block to which dropout also lowers samples, such as 24,12,6,4, or none; repeatable."
        ),
    ] = None,
    repeats: Annotated[
        _Lists, typer.Option(help="How many blocks are stacked: one number, or one for each size; repeatable.")
    ] = None,
    block_dropout: Annotated[
        str | None,
        typer.Option(
            help="The share of channels that is dropped inside blocks in training, such as 0,0.1, or a "
            "range, such as 0:0.2."
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(min=1, help="Train as many designs as this, drawn by Optuna, instead of every combination."),
    ] = None,
    rounds: Annotated[
        int,
        typer.Option(
            min=1,
            max=10,
            help="Successive halving: each round keeps a third of the designs, and trains them for three "
            "times the epochs.",
        ),
    ] = 1,
    objectives: Annotated[
        str,
        typer.Option(
            help="What designs are judged by: accuracy, accuracy@N, each (accuracy at each resolution), "
            "multiply-adds, parameters."
        ),
    ] = "accuracy,multiply-adds",
    holdout: Annotated[int | None, typer.Option(min=1, help="Training images to judge by [default: a tenth].")] = None,
    epochs: Annotated[int | None, typer.Option(help="The number of epochs, instead of the recipe's own.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Train each design with this many seeds, from 0 on.")] = 1,
    data: Data = None,
    jobs: JobsAtOnce = None,
    cluster: Cluster = None,
    jobs_per_gpu: JobsPerGpu = None,
    cpus_per_job: CpusPerJob = None,
    storage: StorageAddress = None,
    limit: Annotated[int, typer.Option(help="Refuse to train more designs than this.")] = 36,
    out: Annotated[Path, typer.Option(help="The folder for runs, table and picture.")] = Path("runs/sweep"),
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    compiled: Annotated[bool, typer.Option("--compile", help="Train through torch.compile.")] = False,
    list_: Annotated[bool, typer.Option("--list", "--dry-run", help="Only show the runs and their state.")] = False,
) -> None:
    """Search for a better design: train many and compare them on images held out of the training set.

    Every combination is trained. With --trials, Optuna draws some of them, more and more like the best so far.
    With --rounds, most designs are trained for fewer epochs only. The test set is not used. Options left out are
    those of the data set's own design. The last value of a list is that of the base; the values before it are fitted
    to each ladder: a depth of 1,1,2 becomes 1,1,1,2 on four sizes and 1,2 on two. Finished runs are skipped and
    interrupted runs continue. A search by Optuna continues too: --out holds its state.

    Examples:

    arrn sweep sample --sizes 32,16,8 --sizes 32,16,12,8 --p 0.4,0.6 --epochs 2

    arrn sweep cifar10 --depth 2,4,6 --depth 2,2,8 --block inverted,zero_preserving --epochs 16 --jobs 4

    arrn sweep cifar10 --blockless none --blockless 24,12,6,4 --epochs 16

    arrn sweep cifar10 --trials 60 --rounds 3 --p 0.3:0.8 --depth 2 --depth 1,1,2 --epochs 27 --cluster auto

    arrn sweep ~/pictures --sizes 64,32,16 --features 32,64,128 --holdout 500 --list
    """
    from arrn.data import data_root, hold_out, open_dataset, set_or_path
    from arrn.experiments.halving import Designs, EveryDesign, Halving, round_epochs, shortened
    from arrn.experiments.jobs import Job
    from arrn.experiments.objectives import read_objectives
    from arrn.experiments.study import open_study
    from arrn.experiments.sweep import permute
    from arrn.models import DESIGNS
    from arrn.runs import Machine, RunSettings
    from arrn.training import recipe_for

    fleet = Fleet(jobs, cluster, jobs_per_gpu, cpus_per_job, storage, device)
    fleet.check_device()
    dataset = set_or_path(dataset, data)
    root = data_root(data)
    axes = _axes(
        DESIGNS[facts_of(dataset).design],
        sizes=sizes,
        features=features,
        expansion=expansion,
        depth=depth,
        repeats=repeats,
        p=p,
        block=block,
        blockless=blockless,
        block_dropout=block_dropout,
    )
    designs = [] if trials else permute(axes)
    if len(designs) > limit:
        raise ArrnError(
            f"these choices give {len(designs)} designs, more than {limit}: give fewer choices, draw some of "
            f"the designs by "
            f"--trials, or allow them by --limit {len(designs)}"
        )
    train = open_dataset(dataset, root).train
    held_out = holdout or max(1, len(train) // 10)
    hold_out(train, held_out, seed=0)  # what cannot be held out, or built, is told before anything runs
    for options in designs:
        _check_design(options)
    recipe = recipe_for(dataset).with_options({} if epochs is None else {"epochs": epochs})
    folder, machine = out.resolve(), Machine(device, compiled=compiled)
    command = shlex.join(["arrn", *sys.argv[1:]])

    def jobs_of(name: str, options: Mapping[str, Any], epochs: int) -> list[Job]:
        settings = RunSettings(dataset, "arrn", options, shortened(recipe, epochs), 0, held_out, data=root)
        return [
            Job(
                name,
                dataclasses.replace(settings, seed=seed),
                folder,
                folder / "results",
                split="validation",
                machine=machine,
                command=command,
            )
            for seed in range(seeds)
        ]

    each = round_epochs(recipe.epochs, rounds)
    judged = read_objectives(objectives, _resolutions(objectives, jobs_of("", {}, 1)[0]))
    count, judges = trials or len(designs), f"{held_out:,} images of its training set"
    title = f"{count} designs on {Path(dataset).name}, judged by {judges}"
    if list_:
        if designs:
            begun = Halving(EveryDesign(designs), each, jobs_of, judged)
            list_jobs(begun.first_round(), title)
        else:
            say(title)
        if rounds > 1 or trials:
            say(_rounds_in_words(count, each))
        return
    with ExitStack() as opened:
        source: Designs = EveryDesign(designs)
        if trials:
            journal = folder / f"search-{Path(dataset).name}.journal"
            source = opened.enter_context(open_study(journal, axes, trials, judged, check=_check_design))
        search = Halving(source, each, jobs_of, judged)
        first = search.more([], 1 if trials else len(designs))
        if search.skipped:
            say(f"{search.skipped} runs finished before and are skipped")
        failure = fleet.carry_out(first, more=search.more) if first else None
    if search.rounds[-1].standings:
        show_standings(search, judged, title, out / f"sweep-{Path(dataset).name}", command)
    if failure is not None:
        raise failure


def _check_design(options: Mapping[str, Any]) -> None:
    """Builds it where nothing is computed; what cannot be built is an `ArrnError`."""
    import torch

    from arrn.models import create_model

    with torch.device("meta"):
        create_model("arrn", **options)


def _resolutions(objectives: str, job: Job) -> Sequence[int]:
    """Where the job will be evaluated; samples are looked at only where an objective depends on it."""
    from arrn.experiments.plan import resolutions_for
    from arrn.runs import open_split

    if not any(name in objectives for name in ("each", "@")):
        return ()
    return resolutions_for(max(map(max, open_split(job.settings, job.split).sizes)), job.dataset)


def _rounds_in_words(designs: int, epochs: Sequence[int]) -> str:
    """
    >>> _rounds_in_words(40, [2, 5, 16])
    'rounds: 40 designs for 2 epochs, 14 for 5 epochs, 5 for 16 epochs'
    """
    from arrn.experiments.halving import kept_of

    counts = [designs]
    for _ in epochs[1:]:
        counts.append(kept_of(counts[-1]))
    parts = [f"{count} for {each} epochs" for count, each in zip(counts, epochs, strict=True)]
    return "rounds: " + ", ".join(parts).replace(" for", " designs for", 1)


def _axes(
    design: Design,
    *,
    sizes: _Lists,
    features: _Lists,
    expansion: _Lists,
    depth: _Lists,
    repeats: _Lists,
    p: str | None,
    block: str,
    blockless: _Lists,
    block_dropout: str | None,
) -> Axes:
    """What was given, the rest from the data set's own design."""
    from arrn.experiments.sweep import Axes

    without = [[] if text.strip() == "none" else whole_numbers("--blockless", text) for text in blockless or []]
    return Axes(
        sizes=[whole_numbers("--sizes", text) for text in sizes or []] or [design.sizes],
        features=[whole_numbers("--features", text) for text in features or []] or [design.features],
        expansion=[numbers("--expansion", text) for text in expansion or []] or [design.expansion],
        depth=[whole_numbers("--depth", text) for text in depth or []] or [design.depth],
        p=[design.dropout] if p is None else _numbers_or_range("--p", p),
        block=[name.strip() for name in block.split(",")],
        blockless=without or [design.blockless],
        repeats=[whole_numbers("--repeats", text) for text in repeats or []] or [design.repeats],
        block_dropout=[design.block_dropout]
        if block_dropout is None
        else _numbers_or_range("--block-dropout", block_dropout),
    )


def _numbers_or_range(option: str, text: str) -> list[float] | Range:
    from arrn.experiments.sweep import Range

    low, colon, high = text.partition(":")
    if not colon:
        return numbers(option, text)
    ends = numbers(option, f"{low},{high}")
    return Range(ends[0], ends[1])
