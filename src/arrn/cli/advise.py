"""`arrn advise`."""

from __future__ import annotations

from typing import Annotated

import typer

from arrn.cli.console import Data, MaxPixels, say
from arrn.datasets import facts_of


def advise(
    dataset: Annotated[str, typer.Argument(help="The path of a folder, or the name of a data set.")],
    *,
    data: Data = None,
    window: Annotated[
        float | None, typer.Option(help="Seconds to which each clip of sound is cropped or padded.")
    ] = None,
    sample_rate: Annotated[
        int | None, typer.Option(help="Samples per second of sound. Clips of another rate are resampled.")
    ] = None,
    aspect: Annotated[
        str | None, typer.Option(help="How to fit images of other proportions: stretch, pad or crop.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out samples that cannot be read.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    max_pixels: MaxPixels = None,
) -> None:
    """Look at a data set and propose a ladder, features, a batch and epochs for it, with the reasons.

    A few training steps on noise measure memory and time on this machine. Nothing is written. `arrn train FOLDER`
    without --model trains what is proposed.

    Examples:

    arrn advise ~/pictures

    arrn advise ~/words --window 1.5
    """
    from arrn.data import data_root, set_or_path, skipped_in_words, suggesting_skip_bad
    from arrn.runs import RunSettings
    from arrn.runs import advise as look_at

    named = set_or_path(dataset, data)
    start = RunSettings(named, facts_of(named).design, data=data_root(data), skip_bad=skip_bad, sample_rate=sample_rate)
    given = {name: value for name, value in (("window", window), ("aspect", aspect)) if value is not None}
    with suggesting_skip_bad("--skip-bad", skip_bad):
        advice = look_at(start, given=given, device=device, max_pixels=max_pixels)
    say(str(advice))
    if advice.bad:
        say(skipped_in_words(advice.bad))
    for reason in advice.reasons:
        say(f"- {reason}")
    say(f"the same as: {advice.command}")
