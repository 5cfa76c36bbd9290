"""`arrn finish`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arrn.cli.console import say
from arrn.cli.train import next_step


def finish(folder: Annotated[Path, typer.Argument(help="A run that was stopped before its end.")]) -> None:
    """End a stopped run early: save the network of its latest checkpoint, or of its best epoch, as the final one.

    run.json says from which checkpoint. The run cannot go on after it; `arrn evaluate FOLDER --checkpoint` tells
    before how good the network is. The last epochs of a run, at a low learning rate, gain more than others.

    Examples:

    arrn evaluate runs/first --checkpoint --split validation

    arrn finish runs/first
    """
    from arrn.runs import finish_run

    folder = folder.expanduser()
    stopped = finish_run(folder)
    say(f"saved the weights of {stopped}")
    say(f"trained network, finished early: {folder}{next_step(folder)}")
