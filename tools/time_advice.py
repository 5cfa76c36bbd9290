"""Compares the time of an epoch that `arrn advise` predicts with the time that it takes, on folders of five kinds.

    python tools/time_advice.py             # on a quiet machine: about two minutes on two cores

The folders are written from the images that ship with the package: few and many images, tiny and large ones, one class
much smaller than the others. Each is advised on and trained for a few epochs, as `arrn train FOLDER` does. An epoch is
timed from its beginning to that of the next one, so the validation counts, and the median of the epochs is taken. The
exit status is 1 where a prediction is more than twice, or less than half of, what was measured.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from arrn.data import open_dataset
from arrn.runs import Machine, RunSettings, advise, run_training

EPOCHS = 5  # the first one is not timed: it warms up
FACTOR = 2.0

Sizes = Sequence[tuple[int, int]]

KINDS: dict[str, tuple[Sizes, Sequence[int]]] = {
    # sizes (height, width), which images take in turn; how many images of each class
    "few": ([(24, 32), (48, 48), (160, 120), (96, 64)], (20, 20, 20)),
    "many": ([(32, 32)], (450,) * 10),
    "tiny": ([(8, 8), (12, 10)], (150, 150)),
    "large": ([(600, 800), (480, 480)], (60, 60)),
    "one small class": ([(48, 48), (64, 56)], (300, 300, 25)),
}


class EpochTimes:
    """A watcher that notes when epochs begin."""

    def __init__(self) -> None:
        self.begins: list[float] = []

    def samples_seen(self, what: str, done: int, total: int) -> None:
        """Nothing is shown."""

    def epoch_begins(self, epoch: int, epochs: int, steps: int, first: int) -> None:
        """Notes the time."""
        self.begins.append(time.monotonic())

    def step_done(self, step: int, loss: float, accuracy: float, examples_per_second: float) -> None:
        """Nothing is shown."""

    def epoch_ends(self, entry: Mapping[str, Any]) -> None:
        """The epoch's validation is over, too."""

    def seconds(self) -> float:
        """Of an epoch: the median of those after the first."""
        ends = self.begins[1:]
        return statistics.median(end - begin for begin, end in zip(self.begins[1:-1], ends[1:], strict=True))


def write_images(root: Path, sizes: Sizes, counts: Sequence[int]) -> None:
    """ROOT/CLASS/NUMBER.jpg: images of the shipped sample, resized."""
    source = open_dataset("sample").train
    for label, count in enumerate(counts):
        folder = root / source.class_names[label]
        folder.mkdir(parents=True)
        members = torch.nonzero(source.labels == label)[:, 0].tolist()
        for number in range(count):
            height, width = sizes[number % len(sizes)]
            pixels = source.read(members[number % len(members)]).permute(1, 2, 0).numpy()
            Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC).save(folder / f"{number:04}.jpg")


def compare(name: str, folder: Path, device: str) -> dict[str, Any]:
    """Predicts, trains and times: a row of the table."""
    sizes, counts = KINDS[name]
    write_images(folder / "images", sizes, counts)
    began = time.monotonic()
    advice = advise(RunSettings(str(folder / "images")), device=device)
    advising = time.monotonic() - began
    recipe = advice.settings.recipe.with_options({"epochs": EPOCHS})
    times = EpochTimes()
    run_training(dataclasses.replace(advice.settings, recipe=recipe), folder / "run", Machine(device), watcher=times)
    measured = times.seconds()
    return {
        "folder": name,
        "images": sum(counts),
        "ladder": " -> ".join(map(str, advice.settings.options["sizes"])),
        "batch": advice.settings.recipe.batch_size,
        "predicted, s": f"{advice.seconds:.2f}",
        "measured, s": f"{measured:.2f}",
        "ratio": f"{advice.seconds / measured:.2f}",
        "advising, s": f"{advising:.1f}",
    }


def main() -> int:
    """Prints a row for each folder as it is done; 1 where a prediction is off by more than a factor of two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", action="append", choices=KINDS, help="only these folders; repeatable")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {given.device}\n")
    ratios: list[float] = []
    for name in given.kind or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            row = compare(name, Path(folder), given.device)
        if not ratios:
            print(f"| {' | '.join(row)} |\n|{'---|' * len(row)}")
        print(f"| {' | '.join(map(str, row.values()))} |", flush=True)
        ratios.append(float(row["ratio"]))
    return int(not all(1 / FACTOR <= ratio <= FACTOR for ratio in ratios))


if __name__ == "__main__":
    sys.exit(main())
