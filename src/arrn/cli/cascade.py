"""`arrn evaluate --cascade`: levels and thresholds chosen on held-out samples, and measured on the test split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import Progress
from rich.table import Table

from arrn.cli.console import LEADS, console, say, shown
from arrn.errors import ArrnError

if TYPE_CHECKING:
    from arrn.deploy.calibration import CascadeReport

_ROWS = 10  # of the table; the file has all


def evaluate_cascade(
    folder: Path,
    *,
    policy: str | None,
    dataset: str | None,
    data: str | None,
    json: Path | None,
    plot: Path | None,
    device: str,
    skip_bad: bool,
    max_pixels: int | None,
) -> None:
    """Calibrates the cascade of the network in a folder, measures it, and writes what was found beside the network."""
    from arrn.deploy import Predictor, calibrate_run, write_cascade
    from arrn.figures import plot_cascade
    from arrn.metadata import Metadata
    from arrn.nn.network import as_policy, config_of
    from arrn.runs import open_samples
    from arrn.saving import load

    chosen = None if policy is None else as_policy(policy)
    predictor = Predictor(folder, device=device, policy=chosen, max_pixels=max_pixels)
    model = load(folder)
    metadata = model.metadata
    assert isinstance(metadata, Metadata)
    held_out, test = (
        open_samples(
            folder, model, metadata, split, dataset=dataset, data=data, skip_bad=skip_bad, max_pixels=max_pixels
        )
        for split in ("validation", "test")
    )
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("calibrating", total=None)
        report = calibrate_run(
            predictor,
            held_out,
            test,
            model=config_of(model)["name"],
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if not LEADS:
        return
    title = f"cascade of {report.model} on {report.dataset}, test split of {report.facts['test']:,} samples"
    console.print(_table(report, title))
    say(f"levels and thresholds: chosen on {report.cascade.source}; the test split only measures them")
    say("--budget takes the last cascade that cost no more on the held-out ones; --threshold climbs over all levels")
    say(
        "cost: million multiply-adds of all levels that ran for an input, on average; no level reuses the "
        "work of another"
    )
    say(f"calibration: {write_cascade(folder, report.cascade)}")
    file = json or folder / "evaluation-cascade.json"
    report.write(file)
    say(f"numbers: {file}")
    picture = plot or folder / "evaluation-cascade.png"
    say(f"picture: {plot_cascade(picture, report.results, report.levels, report.plain, title)}")


def check_flags(resolutions: str | None, adapt: bool | None, split: str) -> None:
    """Refuses the flags of `arrn evaluate` that say nothing of a cascade."""
    if resolutions is not None or adapt is not None:
        raise ArrnError("--cascade takes samples as they come: leave --resolutions, --adapt and --no-adapt out")
    if split != "test":
        raise ArrnError(
            "--cascade chooses levels and thresholds on the validation split and measures them on the test split: "
            f"leave --split {split} out"
        )


def _table(report: CascadeReport, title: str) -> Table:
    table = Table(title=shown(title, "table.title"), caption="accuracy in %, with 95% intervals")
    for column in ("how", "threshold", "cost", "of the plain cost", "accuracy"):
        table.add_column(column, justify="left" if column == "how" else "right")
    whole = report.plain["multiply_adds"]

    def add(how: str, threshold: str, result: Mapping[str, Any], end: bool = False) -> None:
        low, high = result["interval"]
        cost = result["multiply_adds"]
        accuracy = f"{100 * result['accuracy']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
        table.add_row(how, threshold, f"{cost / 1e6:.2f}", f"{cost / whole:.0%}", shown(accuracy), end_section=end)

    add("each at its own size", "", report.plain, end=True)
    for number, level in enumerate(report.levels):
        add(f"level {level['grid']} for all", "", level, end=number == len(report.levels) - 1)
    for result in _some(report.results):
        climbs = len(result["visited"]) > 1
        add(f"cascade {' -> '.join(result['visited'])}", f"{result['threshold']:.3f}" if climbs else "", result)
    return table


def _some(results: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """At most `_ROWS` results, evenly spread over the cost; the first and the last among them."""
    low, high = results[0]["multiply_adds"], results[-1]["multiply_adds"]
    wanted = [low + (high - low) * n / (_ROWS - 1) for n in range(_ROWS)]
    nearest = {min(range(len(results)), key=lambda n: abs(results[n]["multiply_adds"] - cost)) for cost in wanted}
    return [results[n] for n in sorted(nearest)]
