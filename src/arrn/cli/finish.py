"""`arrn finish`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arrn.cli.console import say
from arrn.cli.train import next_step


def finish(folder: Annotated[Path, typer.Argument(help="A run that was stopped before its end.")]) -> None:
    """End a stopped run early: save the network of its latest checkpoint, or of its best epoch, as the final network.

    run.json records which checkpoint was taken. The run cannot continue after this. `arrn evaluate FOLDER --checkpoint`
    first shows how good the network is. The last epochs of a run, at a low learning rate, gain more than earlier ones.

    Examples:

    arrn evaluate runs/first --checkpoint --split validation

    arrn finish runs/first
    """
    from arrn.runs import finish_run

    folder = folder.expanduser()
    stopped = finish_run(folder)
    say(f"saved the weights of {stopped}")
    say(f"trained network, finished early: {folder}{next_step(folder)}")
