"""`arrn benchmark`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arrn.cli.benchmark_tables import (
    ceilings_line,
    comparison_table,
    data_table,
    falls_table,
    inference_table,
    load_table,
    times_table,
)
from arrn.cli.console import assignments, check_plot, numbers, print_wide, say, whole_numbers
from arrn.errors import ArrnError

if TYPE_CHECKING:  # help and completion do not wait for torch
    from arrn.benchmarks import BenchmarkReport


def benchmark(
    subject: Annotated[
        str,
        typer.Argument(
            help="What to measure: step, inference, resampling, depthwise, augmentation, recipe, deploy, load or data; "
            "all is every subject but load and data."
        ),
    ] = "all",
    *,
    model: Annotated[str, typer.Option(help="The model, by a name that `arrn models` lists.")] = "arrn_cifar10",
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Any option of the model; repeatable.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    batch: Annotated[
        str | None,
        typer.Option(help="Batch sizes, such as 1000,1 [default: 128, for inference 1000,1; on a CPU 16 and 8,1]."),
    ] = None,
    resolutions: Annotated[
        str | None,
        typer.Option(
            help="For inference: the resolutions, such as 32,16,8 [default: from the top grid down to an eighth of it]."
        ),
    ] = None,
    baselines: Annotated[
        str | None,
        typer.Option(
            help="For inference, recipe and deploy: other models to measure, such as "
            "resnet18,mobilenet_v3_large; none for "
            "none [default: three]."
        ),
    ] = None,
    compiled: Annotated[
        bool | None,
        typer.Option(
            "--compile/--no-compile", help="Also measure through torch.compile [default: yes, but not with --quick]."
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Only see whether everything works: small inputs, few repetitions. The times mean nothing."
        ),
    ] = False,
    network: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="For load and deploy: a saved network; for load also an exported one."),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            help="For load: how long the load lasts; measuring the rates takes half of this time in addition. For "
            "data: how long the rounds of one size take."
        ),
    ] = 120,
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="For data: parquet shards, which are copied to each size.")
    ] = None,
    gigabytes: Annotated[str, typer.Option(help="For data: the sizes of the streamed sets.")] = "2,6",
    workers: Annotated[int, typer.Option(help="For data: processes that decode.")] = 2,
    json: Annotated[Path | None, typer.Option(help="Also write the numbers to this JSON file.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the time of inference over resolution to this PNG or SVG file.")
    ] = None,
    load: Annotated[
        Path | None,
        typer.Option(metavar="A.json", help="Measure nothing: show, or plot, numbers that --json wrote earlier."),
    ] = None,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="A.json B.json", help="Measure nothing: show which times differ between two files of numbers."
        ),
    ] = None,
) -> None:
    """Measure speed: each fast way of doing a task against the reference way, in one run.

    Times are medians of 10; spreads are between the quartiles. Beside each time stand its floors: the least time that
    its bytes and its arithmetic take, at the bandwidth and the rate that were measured in the same run.

    Examples:

    arrn benchmark --quick

    arrn benchmark step --model arrn_cifar10 --device cuda --batch 128 --json step.json

    arrn benchmark inference --resolutions 32,16,8 --plot efficiency.png --json inference.json

    arrn benchmark load --network weights/arrn_small --json load.json

    arrn benchmark data --data ROOT/imagenette96 --json data.json

    arrn benchmark deploy --network runs/first --device cpu --baselines resnet18 --json deploy.json

    arrn benchmark --load inference.json --plot efficiency.png

    arrn benchmark --compare before.json after.json
    """
    from arrn.benchmarks import BASELINES, BenchmarkSettings, pick_subjects, run_benchmark, write_benchmark
    from arrn.runs import pick_device

    if compare is not None:
        _compare(*compare)
        return
    check_plot(plot)
    if load is not None:
        _show_again(load, plot)
        return
    subjects = pick_subjects(subject)
    if plot is not None and "inference" not in subjects:
        raise ArrnError(f"--plot draws times of inference, which {subject!r} does not measure: give inference")
    settings = BenchmarkSettings(
        model=model,
        options=assignments("--option", option or []),
        device=pick_device(device),
        batches=whole_numbers("--batch", batch),
        resolutions=whole_numbers("--resolutions", resolutions),
        baselines=BASELINES if baselines is None else [name for name in baselines.split(",") if name != "none"],
        compiled=not quick if compiled is None else compiled,
        quick=quick,
        network=network,
        seconds=seconds,
        data=data,
        gigabytes=numbers("--gigabytes", gigabytes),
        workers=workers,
    )

    def show(measured: str, report: BenchmarkReport) -> None:
        # After each subject: a run that is cut short leaves what it has.
        _show(measured, report)
        if json is not None:
            write_benchmark(report, json)

    report = run_benchmark(subjects, settings, say, show)
    if json is not None:
        say(f"numbers: {json}")
    if plot is not None:
        _plot(report, plot)


def _show(subject: str, report: BenchmarkReport) -> None:
    from arrn.benchmarks.inference import last_way_of_all
    from arrn.benchmarks.report import DATA, LOAD

    measurements = [measured for measured in report.measurements if measured.subject == subject]
    if not measurements:
        say(f"{subject}: nothing to measure for this model")
        return
    if subject == "inference":
        for batch in dict.fromkeys(measured.facts["batch"] for measured in measurements):
            group = [measured for measured in measurements if measured.facts["batch"] == batch]
            print_wide(inference_table(group))
            if alike := last_way_of_all(group):
                print_wide(falls_table(alike))
    elif subject == LOAD:
        print_wide(load_table(measurements))
    elif subject == DATA:
        print_wide(data_table(measurements))
    else:
        print_wide(times_table(subject, measurements))
    for failure, count in Counter(f"{m.way}: {m.failure}" for m in measurements if m.failure).items():
        say(f"failed {count} times, {failure}")
    if report.ceilings is not None:
        say(ceilings_line(report.ceilings))


def _plot(report: BenchmarkReport, plot: Path) -> None:
    from arrn.benchmarks.figure import plot_efficiency

    say(f"picture: {plot_efficiency(report, plot)}")


def _show_again(file: Path, plot: Path | None) -> None:
    from arrn.benchmarks import read_benchmark
    from arrn.provenance import machine_of

    report = read_benchmark(file)
    say(f"measured on {machine_of(report.provenance)}")
    for subject in dict.fromkeys(measured.subject for measured in report.measurements):
        _show(subject, report)
    if plot is not None:
        _plot(report, plot)


def _compare(before: Path, after: Path) -> None:
    from arrn.benchmarks import compare, read_benchmark

    comparison = compare(read_benchmark(before), read_benchmark(after))
    for difference in comparison.differences:
        say(f"the runs differ: {difference}")
    print_wide(comparison_table(comparison, before.name, after.name))
    for missing, where in ((comparison.gone, before), (comparison.new, after)):
        for line in missing:
            say(f"only in {where}: {line}")
    moved = sum(change.moved for change in comparison.changes)
    say(f"{moved} of {len(comparison.changes)} times changed by more than the spread of either run")
