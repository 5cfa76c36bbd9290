"""`arrn sweep`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from arrn.cli.console import Data, console, data_root, numbers, print_wide, say, set_or_path, shown, whole_numbers
from arrn.cli.fleet import Cluster, CpusPerJob, Fleet, JobsAtOnce, JobsPerGpu, StorageAddress, job_table
from arrn.datasets import facts_of
from arrn.errors import ArrnError

if TYPE_CHECKING:  # help and completion do not wait for torch
    from arrn.experiments.sweep import Axes, Standing
    from arrn.models import Design


_Lists = list[str] | None


def sweep(
    dataset: Annotated[str, typer.Argument(help="sample, cifar10, ..., or the path of a folder.")],
    *,
    sizes: Annotated[_Lists, typer.Option(help="A ladder, such as 32,16,8; repeatable.")] = None,
    features: Annotated[_Lists, typer.Option(help="One for each size, such as 64,128,256; repeatable.")] = None,
    expansion: Annotated[_Lists, typer.Option(help="One number, or one for each size; repeatable.")] = None,
    depth: Annotated[_Lists, typer.Option(help="One number, or one for each size; repeatable.")] = None,
    p: Annotated[str | None, typer.Option(help="Of Laplacian dropout, such as 0.4,0.6.")] = None,
    block: Annotated[str, typer.Option(help="inverted, zero_preserving, or both with a comma between.")] = "inverted",
    blockless: Annotated[
        _Lists,
        typer.Option(help="Sizes without a block that dropout also drops to, such as 24,12,6,4, or none; repeatable."),
    ] = None,
    repeats: Annotated[_Lists, typer.Option(help="Blocks at each size, as --depth; repeatable.")] = None,
    block_dropout: Annotated[
        str | None, typer.Option(help="Shares of channels that blocks lose in training: 0,0.1.")
    ] = None,
    holdout: Annotated[int | None, typer.Option(min=1, help="Training images to judge by [default: a tenth].")] = None,
    epochs: Annotated[int | None, typer.Option(help="Instead of the recipe's number.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Train each design with this many seeds, from 0 on.")] = 1,
    data: Data = None,
    jobs: JobsAtOnce = None,
    cluster: Cluster = None,
    jobs_per_gpu: JobsPerGpu = None,
    cpus_per_job: CpusPerJob = None,
    storage: StorageAddress = None,
    limit: Annotated[int, typer.Option(help="The most designs; more are refused.")] = 36,
    out: Annotated[Path, typer.Option(help="The folder for runs, table and picture.")] = Path("runs/sweep"),
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    compiled: Annotated[bool, typer.Option("--compile", help="Train through torch.compile.")] = False,
    list_: Annotated[bool, typer.Option("--list", "--dry-run", help="Only tell what there is to do.")] = False,
) -> None:
    """Search for a better design: train every combination and compare them on images held out of the training set.

    The test set is not touched. What is not given is as in the data set's own design. The last value of a list is
    the base's; before it, lists are fitted to a ladder: a depth of 1,1,2 is 1,1,1,2 on four sizes and 1,2 on two.
    Finished runs are skipped, interrupted ones go on.

    Examples:

    arrn sweep sample --sizes 32,16,8 --sizes 32,16,12,8 --p 0.4,0.6 --epochs 2

    arrn sweep cifar10 --depth 2,4,6 --depth 2,2,8 --block inverted,zero_preserving --epochs 16 --jobs 4

    arrn sweep cifar10 --blockless none --blockless 24,12,6,4 --epochs 16

    arrn sweep ~/pictures --sizes 64,32,16 --features 32,64,128 --holdout 500 --list
    """
    import torch

    from arrn.data import hold_out, open_dataset
    from arrn.experiments.jobs import Job
    from arrn.experiments.sweep import design_name, permute, rank
    from arrn.models import DESIGNS, create_model
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
    designs = permute(axes)
    if len(designs) > limit:
        raise ArrnError(f"that are {len(designs)} designs, more than {limit}: fewer choices, or --limit {len(designs)}")
    train = open_dataset(dataset, root).train
    held_out = holdout or max(1, len(train) // 10)
    hold_out(train, held_out, seed=0)  # what cannot be held out, or built, is told before anything runs
    with torch.device("meta"):
        for options in designs:
            create_model("arrn", **options)
    recipe = recipe_for(dataset).with_options({} if epochs is None else {"epochs": epochs})
    folder, machine = out.resolve(), Machine(device, compiled=compiled)
    command = shlex.join(["arrn", *sys.argv[1:]])
    chosen = [
        Job(
            design_name(options),
            RunSettings(dataset, "arrn", options, recipe, seed, held_out, data=root),
            folder,
            folder / "results",
            split="validation",
            machine=machine,
            command=command,
        )
        for seed in range(seeds)
        for options in designs
    ]
    title = f"{len(designs)} designs on {Path(dataset).name}, judged by {held_out:,} images of its training set"
    if list_:
        print_wide(job_table(chosen, title))
        return
    to_do = [job for job in chosen if job.state() != "finished"]
    if len(to_do) < len(chosen):
        say(f"{len(chosen) - len(to_do)} finished before, skipped")
    failure = fleet.carry_out(to_do)
    found = [result for job in chosen if (result := job.read_result()) is not None]
    if found:
        _show(rank(found), title, out / f"sweep-{Path(dataset).name}", command)
    if failure is not None:
        raise failure


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
        p=[design.dropout] if p is None else numbers("--p", p),
        block=[name.strip() for name in block.split(",")],
        blockless=without or [design.blockless],
        repeats=[whole_numbers("--repeats", text) for text in repeats or []] or [design.repeats],
        block_dropout=[design.block_dropout] if block_dropout is None else numbers("--block-dropout", block_dropout),
    )


def _show(standings: Sequence[Standing], title: str, stem: Path, command: str) -> None:
    """The table, its JSON file, and the picture."""
    from arrn.experiments.sweep import find_front, write_standings
    from arrn.figures import ParetoPoint, plot_pareto
    from arrn.provenance import provenance

    front = {standing.name for standing in find_front(standings)}
    table = Table(
        title=shown(title, "table.title"),
        caption="mean accuracy in % over all resolutions; *: none is better for its cost",
    )
    for column in ("", "design", "accuracy", "multiply-adds", "parameters"):
        table.add_column(column, justify="left" if column == "design" else "right", overflow="fold")
    for number, standing in enumerate(standings, 1):
        cost, count = f"{standing.multiply_adds / 1e6:.1f} M", f"{standing.parameters / 1e6:.2f} M"
        accuracy = f"{100 * standing.mean_accuracy:.1f}{'*' if standing.name in front else ' '}"
        table.add_row(str(number), shown(standing.name), accuracy, cost, count)
    console.print(table)
    points = [
        ParetoPoint(str(number), standing.multiply_adds, standing.mean_accuracy, standing.name in front)
        for number, standing in enumerate(standings, 1)
    ]
    numbers_file, picture = stem.with_name(f"{stem.name}.json"), stem.with_name(f"{stem.name}.png")
    write_standings(numbers_file, standings, {"title": title, "command": command, "provenance": provenance()})
    say(f"numbers: {numbers_file}")
    say(f"picture: {plot_pareto(picture, points, title)}")
