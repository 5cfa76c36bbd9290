"""The commands of `arrn`, gathered."""

from __future__ import annotations

from typing import Annotated

import typer

from arrn import __version__
from arrn.cli.addressing import with_addresses
from arrn.cli.advise import advise
from arrn.cli.benchmark import benchmark
from arrn.cli.console import console
from arrn.cli.demo import demo
from arrn.cli.evaluate import evaluate
from arrn.cli.export import export
from arrn.cli.figures import figures
from arrn.cli.finish import finish
from arrn.cli.fleet import job
from arrn.cli.importing import with_imports
from arrn.cli.models import kernels, models
from arrn.cli.predict import predict
from arrn.cli.publish import publish
from arrn.cli.reproduce import reproduce
from arrn.cli.serve import serve
from arrn.cli.sweep import sweep
from arrn.cli.train import train
from arrn.cli.web import web

app = typer.Typer(name="arrn", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown")


def _show_version(wanted: bool) -> None:
    if wanted:
        console.print(__version__, highlight=False)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Adaptive Resolution Residual Networks: one trained network for signals of many resolutions."""


# Of one's own too, by --import.
_TAKE_NETWORKS = {"train", "finish", "evaluate", "predict", "export", "serve", "web", "publish"}

# On the Hugging Face hub, for the folder of a network.
_TAKE_ADDRESSES = {"evaluate", "predict", "export", "serve", "web"}

for _command in (
    demo,
    advise,
    train,
    finish,
    evaluate,
    predict,
    serve,
    export,
    web,
    publish,
    reproduce,
    sweep,
    figures,
    benchmark,
    models,
    kernels,
):
    _taking = with_imports(_command) if _command.__name__ in _TAKE_NETWORKS else _command
    app.command()(with_addresses(_taking) if _command.__name__ in _TAKE_ADDRESSES else _taking)
app.command(hidden=True)(job)
