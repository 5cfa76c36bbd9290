"""The board of many runs: a live table on a terminal, plain lines elsewhere."""

import io
from pathlib import Path

from rich.console import Console

from arrn.cli import progress as boards
from arrn.cli.progress import board, progress_table
from arrn.experiments.jobs import Job
from arrn.experiments.supervising import JobProgress
from arrn.runs import RunSettings


def progress(name: str, state: str, epoch: int = 0, accuracy: float | None = None) -> JobProgress:
    job = Job(name, RunSettings("sample"), Path("out"), Path("results"))
    return JobProgress(job, state, epoch, accuracy, None if accuracy is None else 75.0)


def console(terminal: bool) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=terminal, width=110, color_system=None), text


def test_the_table_has_a_row_for_each_run() -> None:
    place, text = console(terminal=False)
    rows = [progress("[red]a", "training", 40, 0.5), progress("b", "finished", 100, 0.9), progress("c", "waiting")]
    place.print(progress_table(rows))
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.getvalue().splitlines() if "│" in line]
    assert cells == [
        ["[red]a-seed0", "training", "40/100", "50.0%", "1:15"],
        ["b-seed0", "finished", "100/100", "90.0%", ""],
        ["c-seed0", "waiting", "0/100", "", ""],
    ]
    assert "1 of 3 runs ended" in text.getvalue()


def test_a_low_terminal_shows_what_goes_on_and_what_failed() -> None:
    place, text = console(terminal=False)
    states = ("finished", "waiting", "training", "failed", "waiting", "evaluating")
    place.print(progress_table([progress(f"{n}", state) for n, state in enumerate(states)], room=4))
    shown = [line.split("│")[1].strip() for line in text.getvalue().splitlines() if "│" in line]
    assert shown == ["2-seed0", "5-seed0", "3-seed0", "1-seed0"]
    assert "2 of 6 runs ended" in text.getvalue()


def test_a_terminal_shows_the_table_live() -> None:
    place, text = console(terminal=True)
    with board(place) as tell:
        tell([progress("a", "training")])
        tell([progress("a", "finished", 100, 0.9)])
    assert "100/100" in text.getvalue()


def test_elsewhere_there_is_a_line_for_each_change_and_now_and_then_one_more() -> None:
    place, text = console(terminal=False)
    with board(place) as tell:
        tell([progress("a", "training"), progress("b", "waiting")])
        tell([progress("a", "training", 1, 0.1), progress("b", "waiting")])  # too soon for another line
        assert isinstance(tell, boards._BoardLines)
        tell.told["a-seed0"] = ("training", 1, -1e9)
        tell([progress("a", "training", 2, 0.2), progress("b", "waiting")])
        tell([progress("a", "failed", 2, 0.2), progress("b", "training")])
    assert text.getvalue().splitlines() == [
        "a-seed0: training  epoch 0/100",
        "a-seed0: training  epoch 2/100  accuracy 20.0%  1:15 left",
        "a-seed0: failed  epoch 2/100  accuracy 20.0%",
        "b-seed0: training  epoch 0/100",
    ]
