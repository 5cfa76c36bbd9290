"""`arrn predict`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from arrn.cli.console import console, say, shown
from arrn.errors import ArrnError

if TYPE_CHECKING:  # help and completion do not wait for torch
    import torch

    from arrn.evaluation import Prediction
    from arrn.signal.grid import Grid


def predict(
    folder: Annotated[Path, typer.Argument(help="A finished run, or any folder that arrn.save wrote.")],
    images: Annotated[list[Path], typer.Argument(help="Images, wav files, or npy files of volumes, of any sizes.")],
    policy: Annotated[str | None, typer.Option(help="exact or cheap [default: the network's own].")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    max_pixels: Annotated[
        int | None, typer.Option(min=1, help="Refuse larger images, or volumes of more voxels [default: 64 million].")
    ] = None,
) -> None:
    """Tell what is in pictures, sounds or volumes, each at the level of the network that fits its size.

    A file that cannot be read does not stop the others: it is told at the end, and the exit status is 2.

    Examples:

    arrn predict runs/first cat.jpg

    arrn predict runs/first --device cpu pictures/*.png

    arrn predict runs/digits seven.wav
    """
    import torch

    from arrn.data import BadSample
    from arrn.evaluation import predict as answer
    from arrn.nn.network import as_network, as_policy, config_of
    from arrn.runs import load_network, pick_device
    from arrn.runtime import Reader

    chosen = None if policy is None else as_policy(policy)
    model, metadata, normalisation = load_network(folder, pick_device(device))
    if chosen is not None and not as_network(model).adapts:
        say(f"{config_of(model)['name']} has no levels to skip: --policy changes nothing")
    network = as_network(model)
    axes, channels, window = network.ndim, normalisation.channels, metadata.window or 1.0
    reader = Reader(axes, channels, network.grids[0] if network.grids else None, window, max_pixels)
    readable: list[tuple[Path, Grid]] = []
    bad: list[BadSample] = []

    def read() -> Iterator[torch.Tensor]:
        for path in images:
            try:
                signal = reader.read(path)
            except BadSample as error:
                bad.append(error)
                continue
            readable.append((path, signal.size))  # very large images are not read whole
            yield torch.from_numpy(signal.samples)

    inputs = read()
    first = list(islice(inputs, 1))
    answer(model, first, normalisation, chosen)  # the first run sets torch up, which no image should pay for
    predictions = answer(model, chain(first, inputs), normalisation, chosen)
    if readable:
        _show(readable, predictions, metadata.class_names)
    elif len(bad) == 1:
        raise bad[0]
    for problem in bad:
        say(f"not read: {problem}")
    if bad:
        raise ArrnError(f"{len(bad)} of {len(images)} files could not be read")


def _show(files: Sequence[tuple[Path, Grid]], predictions: Sequence[Prediction], names: Sequence[str] | None) -> None:
    from arrn.signal.grid import format_grid

    table = Table()
    for column in ("image", "size", "class", "probability", "level", "time"):
        table.add_column(column, justify="left" if column in ("image", "class") else "right", overflow="fold")
    for (path, size), prediction in zip(files, predictions, strict=True):
        table.add_row(
            shown(path),
            "x".join(map(str, size)),
            shown(prediction.label if names is None else names[prediction.label]),
            f"{prediction.probability:.1%}",
            format_grid(prediction.grid),
            f"{1e3 * prediction.seconds:.1f} ms",
        )
    console.print(table)
    say("level: the grid on which the image entered the network; levels above it did not run")
