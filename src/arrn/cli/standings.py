"""What a search found: a table, its JSON file, and a picture of accuracy against cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from arrn.cli.console import console, say, shown

if TYPE_CHECKING:  # help and completion do not wait for torch
    from arrn.experiments.halving import Halving
    from arrn.experiments.objectives import Objective

_MOST_COLUMNS = 3  # of accuracies at single resolutions; all are in the picture and in the file


def show_standings(search: Halving, objectives: Sequence[Objective], title: str, stem: Path, command: str) -> None:
    """Prints the table of the last round; writes the numbers of all rounds and the picture.

    Args:
        search: one that has ended.
        objectives: that designs are judged by.
        title: of the table and the picture.
        stem: of the files' names.
        command: that made the search.
    """
    from arrn.experiments.objectives import find_front
    from arrn.experiments.sweep import write_standings
    from arrn.figures import ParetoPoint, plot_pareto
    from arrn.figures.pareto import MEAN
    from arrn.provenance import provenance

    standings = search.rounds[-1].standings
    front = {standing.name for standing in find_front(standings, objectives)}
    panels = [objective for objective in objectives if objective.name.startswith("accuracy@")]
    in_table = panels if len(panels) <= _MOST_COLUMNS else []
    table = Table(
        title=shown(title, "table.title"),
        caption="mean accuracy in % over all resolutions; *: no other design beats it in all objectives",
    )
    columns = ["", "design", "accuracy", *(_short(panel) for panel in in_table)]
    for column in (*columns, "multiply-adds", "parameters"):
        table.add_column(column, justify="left" if column == "design" else "right", overflow="fold")
    for number, standing in enumerate(standings, 1):
        cost, count = f"{standing.multiply_adds / 1e6:.1f} M", f"{standing.parameters / 1e6:.3g} M"
        accuracy = f"{100 * standing.mean_accuracy:.1f}{'*' if standing.name in front else ' '}"
        others = [f"{100 * panel.value(standing):.1f}" for panel in in_table]
        table.add_row(str(number), shown(standing.name), accuracy, *others, cost, count)
    console.print(table)
    gone = list(search.gone())
    if gone:
        say(f"{len(gone)} more designs were dropped before the last round, of {search.rounds[-1].epochs} epochs")
    marked = [(str(number), standing, 0) for number, standing in enumerate(standings, 1)]
    points = [
        ParetoPoint(
            label,
            standing.multiply_adds,
            {MEAN: standing.mean_accuracy} | {_short(panel): panel.value(standing) for panel in panels},
            standing.name in front and not epochs,
            epochs,
        )
        for label, standing, epochs in [*marked, *(("", standing, epochs) for standing, epochs in gone)]
    ]
    facts = {
        "title": title,
        "command": command,
        "objectives": [objective.name for objective in objectives],
        "rounds": [
            {"epochs": each.epochs, "designs": [vars(standing) for standing in each.standings]}
            for each in search.rounds[:-1]
        ],
        "provenance": provenance(),
    }
    numbers_file, picture = stem.with_name(f"{stem.name}.json"), stem.with_name(f"{stem.name}.png")
    write_standings(numbers_file, standings, front, facts)
    say(f"numbers: {numbers_file}")
    say(f"picture: {plot_pareto(picture, points, title)}")


def _short(objective: Objective) -> str:
    return f"at {objective.name.partition('@')[2]}"
