"""`arrn publish`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arrn.cli.console import say


def publish(
    folder: Annotated[Path, typer.Argument(help="A finished run, or any folder that arrn.save wrote.")],
    address: Annotated[
        str, typer.Argument(metavar="OWNER/NAME", help="The repository; it is made if it does not exist.")
    ],
    *,
    license: Annotated[
        str,
        typer.Option(
            help="The license of the weights, by the hub's name for it, such as mit, apache-2.0 or cc-by-4.0."
        ),
    ] = "unknown",
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    message: Annotated[str | None, typer.Option(help="The message of the commit.")] = None,
    figure: Annotated[
        Path | None, typer.Option(help="A PNG file for the card [default: evaluation.png in the folder].")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Upload nothing: write the model card to this file, for you to read first.")
    ] = None,
) -> None:
    """Publish a network on the Hugging Face hub, with a model card written from its run.

    Uploads the weights (safetensors), the config, the card, the recipe, the accuracies and the figure, and nothing
    else. Needs a token: `hf auth login`, or the variable HF_TOKEN.

    Examples:

    arrn publish runs/first me/first --license mit

    arrn publish weights/arrn_small me/small --license mit --out out/card.md
    """
    from arrn.deploy.model_card import as_license
    from arrn.deploy.publishing import CARD, collect, push_to_hub
    from arrn.hub import HubAddress
    from arrn.writing import write_atomically, writing_to

    if out is not None:
        content = collect(folder, HubAddress.parse(address), as_license(license), figure)[CARD]
        assert isinstance(content, bytes)
        with writing_to(out):
            write_atomically(out, content)
        say(f"model card: {out}")
        return
    pinned = push_to_hub(folder, address, license=license, private=private, message=message, figure=figure)
    say(f"published: {pinned}")
