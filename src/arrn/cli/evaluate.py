"""`arrn evaluate`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from arrn.cli.cascade import check_flags, evaluate_cascade
from arrn.cli.console import (
    LEADS,
    Data,
    MaxPixels,
    check_plot,
    console,
    say,
    shown,
    whole_numbers,
)
from arrn.errors import ArrnError
from arrn.hub import hub_address

_MISTAKES = 12  # shown in the report for each resolution


def evaluate(
    folder: Annotated[Path, typer.Argument(help="A finished run, or any folder that arrn.save wrote.")],
    *,
    resolutions: Annotated[
        str | None,
        typer.Option(
            help="The resolutions, such as 32,16,8 [default: from the samples' own size, or the network's "
            "top grid if that is "
            "less, down to an eighth]."
        ),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="For sizes between two grids: exact or cheap [default: both].")
    ] = None,
    adapt: Annotated[
        bool | None, typer.Option("--adapt/--no-adapt", help="Skip levels, or run all levels [default: both].")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Evaluate on this data set instead of the run's own.")] = None,
    data: Data = None,
    split: Annotated[
        str, typer.Option(help="The split: test, validation (what --holdout kept out of training) or train.")
    ] = "test",
    resampler: Annotated[
        str | None,
        typer.Option(
            help="How samples are lowered: perfect, fair, poor, bicubic or area [default: as the network was "
            "saved with]."
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="The batch size.")] = 256,
    json: Annotated[
        Path | None,
        typer.Option(
            help="The JSON file [default: evaluation.json in the folder; evaluation-NAME.json for another data set, "
            "split or resampler]."
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="The picture, a PNG or SVG file [default: beside the JSON file's default, named alike]."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="The report for a browser, an HTML file [default: beside the JSON file's default, named alike]."
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    cascade: Annotated[
        bool,
        typer.Option(
            "--cascade",
            help="Measure the cascade, which runs more levels until the network is confident: "
            "accuracy over average "
            "cost.",
        ),
    ] = False,
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--in-memory",
            help="Read samples from disk as needed, or keep them in memory [default: keep what fits].",
        ),
    ] = None,
    aspect: Annotated[
        str | None,
        typer.Option(help="How to fit images of other proportions: stretch, pad or crop [default: as in training]."),
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out samples that cannot be read.")] = False,
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="Evaluate the latest checkpoint of a run that is not finished.")
    ] = False,
    max_pixels: MaxPixels = None,
) -> None:
    """Measure accuracy at several resolutions: a table, a picture, a JSON file and a report for a browser.

    The report shows the confusion matrix, the accuracy of each class, the worst mistakes, and what each resolution
    costs.

    An ARRN is evaluated with both policies, with and without skipping levels, unless flags choose one of them. A
    network of one fixed resolution is given samples interpolated to its own size. Intervals are Wilson's at 95%.

    Examples:

    arrn evaluate runs/first

    arrn evaluate runs/first --resolutions 32,16,8 --policy exact --adapt --json first.json

    arrn evaluate runs/first --dataset ~/pictures --resampler area

    arrn evaluate runs/first --cascade
    """
    from arrn.data import data_root, skipped_in_words, suggesting_skip_bad, word_for
    from arrn.evaluation import is_uneven, write_report
    from arrn.figures import accuracy_lines, as_they_come, plot_accuracy
    from arrn.nn.network import as_policy
    from arrn.pages import evaluation_page, write_page
    from arrn.runs import evaluate_run

    check_plot(plot)
    name = "evaluation-cascade" if cascade else "evaluation"
    beside = folder if hub_address(folder) is None else Path()  # downloads stay as they are
    if LEADS:
        written = {".json": json, ".png": plot, **({} if cascade else {".html": report})}
        for suffix, target in written.items():
            _check_target(target or beside / f"{name}{suffix}")
    if cascade:
        if beside is not folder:
            raise ArrnError("--cascade writes its thresholds beside the network: give a folder, not a hub address")
        check_flags(resolutions, adapt, split)
        evaluate_cascade(
            folder,
            policy=policy,
            dataset=dataset,
            data=data_root(data),
            json=json,
            plot=plot,
            device=device,
            skip_bad=skip_bad,
            max_pixels=max_pixels,
        )
        return
    with (
        Progress(console=console, transient=True, disable=not console.is_terminal) as bar,
        suggesting_skip_bad("--skip-bad", skip_bad),
    ):
        task = bar.add_task("evaluating", total=None)
        found = evaluate_run(
            folder,
            whole_numbers("--resolutions", resolutions),
            policies=("exact", "cheap") if policy is None else (as_policy(policy),),
            adapt=(True, False) if adapt is None else (adapt,),
            dataset=dataset,
            data=data_root(data),
            split=split,
            resampler=resampler,
            batch_size=batch_size,
            device=device,
            stream=stream,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            skip_bad=skip_bad,
            aspect=aspect,
            mistakes=_MISTAKES,
            checkpoint=checkpoint,
            max_pixels=max_pixels,
        )
    if not LEADS:
        return
    for remark in found.facts["remarks"]:
        say(remark)
    if found.results[0]["adapt"] is None and not (policy is None and adapt is None):
        say(f"{found.model} has no levels to skip: --policy and --adapt have no effect")
    # Named after what it is an evaluation of, so that it does not overwrite others in the folder.
    other = [] if dataset is None else [Path(found.dataset).name]
    parts = ["evaluation", *other, split if split != "test" else None, resampler, aspect]
    name = "-".join(part for part in parts if part is not None)
    file = json or beside / f"{name}.json"
    if found.facts["skipped"]:
        say(skipped_in_words(found.facts["skipped_samples"], str(file)))
    lines, mixed = accuracy_lines(found.model, found.results), as_they_come(found.model, found.results)
    total = found.results[0]["total"]
    title = f"{found.model} on {found.dataset}, {split} split of {total:,} samples"
    rate = 1 / found.facts["window"] if found.facts["axes"] == 1 and found.facts["window"] else None
    if mixed:
        words = f"{word_for(found.facts['axes'])}s"
        console.print(_level_table([result for result in found.results if result["resolution"] is None], title, words))
        console.print(accuracy_table(lines, f"lowered to one resolution; smaller {words} stay as they are"))
    else:
        console.print(accuracy_table(lines, title, rate))
    if is_uneven(found.facts["class_counts"]):
        console.print(_balanced_table(lines, rate))
    write_report(found, file)
    say(f"numbers: {file}")
    say(f"picture: {plot_accuracy(plot or beside / f'{name}.png', lines, title, mixed, rate)}")
    page = evaluation_page(found, lines, mixed)
    say(f"report, for a browser: {write_page(report or beside / f'{name}.html', page)}")


def _check_target(path: Path) -> None:
    """Refuses a file that cannot be written, before the work is done; leaves nothing behind."""
    if path.is_dir():
        raise ArrnError(f"cannot write {path}: it is a folder")
    try:
        folder = next(folder for folder in path.absolute().parents if folder.exists())
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ArrnError(f"cannot write {path}: {error.strerror or error}") from error


def accuracy_table(lines: Mapping[str, Sequence[Mapping[str, Any]]], title: str, rate: float | None = None) -> Table:
    """Accuracies with their intervals: a row for each resolution, a column for each line of the plot.

    Args:
        lines: by name.
        title: of the table.
        rate: of sound: samples per second at a resolution of 1.
    """
    return _resolution_table(lines, title, "accuracy in %, with 95% intervals", _accuracy, rate)


def _balanced_table(lines: Mapping[str, Sequence[Mapping[str, Any]]], rate: float | None) -> Table:
    def cell(point: Mapping[str, Any]) -> str:
        return f"{100 * point['balanced_accuracy']:.1f}"

    return _resolution_table(lines, "The mean over classes, which are uneven", "balanced accuracy in %", cell, rate)


def _resolution_table(
    lines: Mapping[str, Sequence[Mapping[str, Any]]],
    title: str,
    caption: str,
    cell: Callable[[Mapping[str, Any]], Text | str],
    rate: float | None,
) -> Table:
    table = Table(title=shown(title, "table.title"), caption=caption)
    table.add_column("resolution", justify="right")
    for label in lines:
        table.add_column(shown(label), justify="right")
    sizes = sorted({point["resolution"] for points in lines.values() for point in points}, reverse=True)
    for size in sizes:
        found = [next((p for p in points if p["resolution"] == size), None) for points in lines.values()]
        spelled = str(size) if rate is None else f"{rate * size:g} Hz" if rate == 1 else f"{size} ({rate * size:g} Hz)"
        table.add_row(spelled, *("" if point is None else cell(point) for point in found))
    return table


def _accuracy(point: Mapping[str, Any]) -> Text:
    low, high = point["interval"]
    return shown(f"{100 * point['accuracy']:.1f} [{100 * low:.1f}, {100 * high:.1f}]")


def _level_table(results: Sequence[Mapping[str, Any]], title: str, words: str) -> Table:
    """For samples of differing sizes, as they come: how all of them did, and those of each level."""
    from arrn.evaluation import wilson_interval

    table = Table(
        title=shown(f"as they come, by level: {title}", "table.title"), caption="accuracy in %, with 95% intervals"
    )
    for column in ("how", "grid", words, "accuracy"):
        table.add_column(column, justify="left" if column == "how" else "right")
    for result in results:
        if result["adapt"] is False:
            continue
        how = "" if result["policy"] is None else result["policy"]
        table.add_row(how, "all", str(result["total"]), _accuracy(result), style="bold")
        for level in result["levels"]:
            share = level["correct"] / level["total"]
            point = {"accuracy": share, "interval": wilson_interval(level["correct"], level["total"])}
            table.add_row(how, shown(level["grid"]), str(level["total"]), _accuracy(point))
    return table
