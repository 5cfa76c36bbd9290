"""`arrn demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from arrn.cli.console import console, say
from arrn.cli.evaluate import accuracy_table
from arrn.watching import watch

_CAPTION = "error: skipping levels against running all; times vary from run to run"


def demo(
    out: Annotated[Path, typer.Option(help="The folder for networks, plot and report.")] = Path("out/demo"),
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the 5,000 training images, for each network.")] = 8,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Train three small networks on the shipped images and compare them at five resolutions.

    The networks are an ARRN with Laplacian dropout, one without, and a ResNet18 that does as many multiply-adds. The
    command writes a plot and a report for a browser. After an interruption the same command continues.

    Example: arrn demo --out /tmp/demo
    """
    from arrn.demo import (
        CONTENDERS,
        COST_COLUMNS,
        RESOLUTIONS,
        measure_costs,
        show_answers,
        train_and_evaluate,
        write_report,
    )
    from arrn.figures import plot_accuracy
    from arrn.provenance import provenance
    from arrn.runs import Machine

    machine = Machine(device=device)

    lines = {}
    for contender in CONTENDERS:
        say(f"{contender.title}:")
        with watch(console) as watcher:
            report = train_and_evaluate(contender, out, epochs, machine, watcher, say)
        lines[contender.title] = report.results
    console.print(accuracy_table(lines, "Trained at 32x32, tested at lower resolutions"))
    folders = [out / contender.folder for contender in CONTENDERS]
    costs = measure_costs(folders[0])
    table = Table(title="What the ARRN needs at each resolution", caption=_CAPTION)
    for column in COST_COLUMNS:
        table.add_column(column, justify="right")
    for cost in costs:
        table.add_row(*cost.cells(costs[0]))
    console.print(table)
    plot = plot_accuracy(out / "accuracy.png", lines, "Trained on 5,000 images of CIFAR-10 at 32x32")
    showings = show_answers(folders, RESOLUTIONS)
    write_report(out / "report.html", CONTENDERS, lines, costs, showings, provenance())
    say(f"picture: {plot}")
    say(f"report, for a browser: {out / 'report.html'}")
