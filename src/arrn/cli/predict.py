"""`arrn predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from arrn.cli.console import console, say
from arrn.errors import ArrnError

__all__ = ["predict"]


def predict(
    folder: Annotated[Path, typer.Argument(help="A finished run, or any folder that arrn.save wrote.")],
    images: Annotated[list[Path], typer.Argument(help="Images, wav files, or npy files of volumes, of any sizes.")],
    policy: Annotated[str | None, typer.Option(help="exact or cheap [default: the network's own].")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Tell what is in pictures, sounds or volumes, each at the level of the network that fits its size.

    A file that cannot be read does not stop the others: it is told at the end, and the exit status is 2.

    Examples:

    arrn predict runs/first cat.jpg

    arrn predict runs/first --device cpu pictures/*.png

    arrn predict runs/digits seven.wav
    """
    from arrn.data import BadSample, read_input
    from arrn.evaluation import predict as answer
    from arrn.experiments import load_network, pick_device
    from arrn.models import signal_axes
    from arrn.nn.arrn import as_policy
    from arrn.signal.grid import format_grid

    chosen = None if policy is None else as_policy(policy)
    model, metadata, normalisation = load_network(folder, pick_device(device))
    axes, channels, window = signal_axes(model) or 2, normalisation.channels, metadata.window or 1.0
    readable, pixels, bad = [], [], []
    for path in images:
        try:
            pixels.append(read_input(path, axes, channels, window))
            readable.append(path)
        except BadSample as error:
            bad.append(error)
    if not readable:
        raise bad[0]
    answer(model, pixels[:1], normalisation, chosen)  # the first run sets torch up, which no image should pay for
    predictions = answer(model, pixels, normalisation, chosen)
    table = Table()
    for column in ("image", "size", "class", "probability", "level", "time"):
        table.add_column(column, justify="left" if column in ("image", "class") else "right", overflow="fold")
    for path, image, prediction in zip(readable, pixels, predictions, strict=True):
        names = metadata.class_names
        table.add_row(
            escape(str(path)),
            "x".join(map(str, image.shape[1:])),
            str(prediction.label) if names is None else escape(names[prediction.label]),
            f"{prediction.probability:.1%}",
            format_grid(prediction.grid),
            f"{1e3 * prediction.seconds:.1f} ms",
        )
    console.print(table)
    say("level: the grid on which the image entered the network; levels above it did not run")
    if bad:
        for problem in bad:
            say(f"not read: {problem}")
        raise ArrnError(f"{len(bad)} of {len(images)} files could not be read")
