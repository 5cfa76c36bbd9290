"""Runs small enough for a test: an easy data set, a tiny network, what a run leaves behind."""

import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from arrn.data import Batch
from arrn.runs import Machine, RunSettings, run_training
from arrn.training import Recipe, TrainingStep
from pictures import encoded, write_parquet

TINY = {"sizes": [8, 4], "features": [4, 8], "depth": 1, "expansion": 2}
TINY_RUN = TINY | {"dropout": 0.4}  # as a run has it by default, without a word about it
COLOURS = ("red", "green", "blue")


def coloured(height: int, width: int, label: int, seed: int) -> np.ndarray[Any, Any]:
    """Noise in which the channel of the label is brighter: easy to learn, whatever the size, the crop or the flip."""
    rng = np.random.default_rng([seed, label])
    pixels = rng.integers(0, 160, size=(height, width, 3))
    pixels[..., label] += 90
    return pixels.astype(np.uint8)


def write_easy_set(root: Path, train: int = 18, test: int = 9, size: int = 8) -> Path:
    """Parquet files of red, green and blue images, as many of each."""
    for split, count, seed in (("train", train, 0), ("test", test, 1000)):
        labels = [n % 3 for n in range(count)]
        images = [encoded(coloured(size, size, label, seed + n)) for n, label in enumerate(labels)]
        write_parquet(root / f"{split}-00000-of-00001.parquet", images, labels, COLOURS)
    return root


def write_mixed_folder(root: Path, sizes: Sequence[tuple[int, int]], per_class: int) -> Path:
    """ROOT/train and ROOT/test, a folder per colour, images going through `sizes` in turn."""
    for split, seed in (("train", 0), ("test", 1000)):
        for label, colour in enumerate(COLOURS):
            folder = root / split / colour
            folder.mkdir(parents=True)
            for number in range(per_class):
                height, width = sizes[number % len(sizes)]
                Image.fromarray(coloured(height, width, label, seed + number)).save(folder / f"{number:03}.png")
    return root


def tiny_settings(root: Path, **recipe: Any) -> RunSettings:
    """Two epochs of five steps, unless the recipe says otherwise."""
    options = TINY if "shares" in recipe else TINY_RUN
    return RunSettings(str(root), "arrn", options, Recipe(**({"epochs": 2, "batch_size": 4} | recipe)))


def train_tiny(root: Path, out: Path, resume: bool = False, checkpoint_every: float = 1.0, **recipe: Any) -> Path:
    run_training(tiny_settings(root, **recipe), out, Machine("cpu", checkpoint_every=checkpoint_every), resume=resume)
    return out


def said_by(settings: RunSettings, out: Path, machine: Machine | None = None, resume: bool = False) -> list[str]:
    """What a run has to say to its user."""
    said: list[str] = []
    run_training(settings, out, machine or Machine("cpu"), resume, say=said.append)
    return said


def weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


def timeless_log(out: Path) -> list[dict[str, Any]]:
    """What the log says, but for how long it took."""
    entries = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [{key: entry[key] for key in entry if key not in ("seconds", "examples_per_second")} for entry in entries]


@contextmanager
def interrupted_after(steps: int, number: signal.Signals) -> Iterator[None]:
    """Within it, the process gets a signal after so many training steps."""
    whole, taken = TrainingStep.__call__, []

    def counted(self: TrainingStep, batch: Batch, step: int) -> None:
        whole(self, batch, step)
        taken.append(step)
        if len(taken) == steps:
            signal.raise_signal(number)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TrainingStep, "__call__", counted)
        yield
