"""What a run is: everything that decides its result, as data, kept beside the result."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arrn.data import Window
from arrn.errors import ArrnError, unknown_name
from arrn.reading import read_document
from arrn.runtime.aspect import as_aspect
from arrn.training.recipe import PAPER_CIFAR, Recipe
from arrn.writing import write_document

RUN_FILE = "run.json"
FORMAT, FORMAT_VERSION = "arrn-run", 1
MOST_WORKERS = 1000
KEPT = ("last", "best")
MOST_SHUFFLE_MEMORY = 2**20  # MiB


@dataclass(frozen=True)
class RunSettings:
    """A training run.

    Attributes:
        dataset: a name or a folder, as `arrn.data.open_dataset` takes it.
        model: a name, as `arrn.create_model` takes it.
        options: options of the model.
        recipe: how the model is trained.
        seed: the seed of all random numbers.
        holdout: the number of samples to keep out of the training set, for validation.
        skip_bad: whether to leave out samples that cannot be read, instead of raising an error.
        data: the root of the data set; None is the usual place.
        window: the length of a sample of sound, in seconds; without effect on images and volumes.
        sample_rate: the sample rate of sound, in samples a second; None is the data set's own rate.
        aspect: how to fit images and volumes of other proportions than the network's grids: "stretch", "pad" or "crop".
        pretrained: whether the network starts from the weights that belong to its name, see `arrn.create_model`.
        keep: the epoch whose weights are saved: the "last" epoch, or the "best" epoch on the validation samples.
    """

    dataset: str
    model: str = "arrn_small"
    options: Mapping[str, Any] = field(default_factory=dict)
    recipe: Recipe = PAPER_CIFAR
    seed: int = 0
    holdout: int = 0
    skip_bad: bool = False
    data: str | None = None
    window: float = 1.0
    sample_rate: int | None = None
    aspect: str = "stretch"
    pretrained: bool = False
    keep: str = "last"

    def __post_init__(self) -> None:
        if self.keep not in KEPT:
            raise unknown_name("epoch to keep", self.keep, KEPT)
        for name, value in (("seed", self.seed), ("number of samples to hold out", self.holdout)):
            if not isinstance(value, int) or isinstance(value, bool):
                raise ArrnError(f"the {name} must be a whole number, got {value!r:.40}")
        if not 0 <= self.seed < 2**63:
            raise ArrnError(f"the seed must be a whole number from 0 to 2**63 - 1, got {self.seed!r:.40}")
        if self.holdout < 0:
            raise ArrnError(f"the number of samples to hold out must be at least 0, got {self.holdout}")
        Window(self.window, self.sample_rate)  # refuses what means nothing
        as_aspect(self.aspect)

    def differences(self, other: RunSettings) -> list[str]:
        """How `other` differs, in words; where the data lie does not matter, nor what `other` leaves to be chosen."""
        mine, theirs = _flat(self), _flat(other)
        for name in ("batch_size", f"{self.model}'s dropout"):  # chosen as a run begins, and written down then
            if theirs.get(name) in (None, "auto"):
                theirs[name] = mine.get(name)
        return [
            f"{name} was {mine.get(name)!r} and is now {theirs.get(name)!r}"
            for name in sorted({*mine, *theirs} - {"data"})
            if mine.get(name) != theirs.get(name)
        ]


def _flat(settings: RunSettings) -> dict[str, Any]:
    # Through JSON, so that tuples and lists compare as equal.
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(settings)))
    recipe, options = plain.pop("recipe"), plain.pop("options")
    changed: dict[str, Any] = plain | recipe | {f"{settings.model}'s {name}": value for name, value in options.items()}
    return changed


def write_run_file(settings: RunSettings, folder: Path, facts: Mapping[str, Any]) -> None:
    """Writes `run.json`: the settings, and facts about the run such as its machine."""
    content = {"settings": dataclasses.asdict(settings), **facts}
    write_document(folder / RUN_FILE, FORMAT, FORMAT_VERSION, content)


def note_in_run_file(folder: Path, facts: Mapping[str, Any]) -> None:
    """Adds facts to `run.json`, or gives them other values; all else in it stays."""
    document = read_run_file(folder)
    content = {name: value for name, value in document.items() if name not in ("format", "format_version")}
    content.pop("arrn_version", None)
    write_document(folder / RUN_FILE, FORMAT, FORMAT_VERSION, {**content, **facts})


def read_run_file(folder: Path) -> dict[str, Any]:
    """All that `run.json` tells; nothing where there is no such file.

    Raises:
        ArrnError: for a file that does not describe a run.
    """
    path = folder / RUN_FILE
    if not path.exists():
        return {}
    document = read_document(path, FORMAT, FORMAT_VERSION)
    splits, origin = document.get("splits", []), document.get("provenance", {})
    if not isinstance(splits, list) or not all(isinstance(split, str) for split in splits):
        raise ArrnError(f"{path}: splits should be a list of names, got {splits!r:.80}")
    if not isinstance(origin, dict):
        raise ArrnError(f"{path}: provenance should be an object, got {origin!r:.80}")
    return document


def read_settings(folder: Path) -> RunSettings | None:
    """The settings in `run.json`, None where there is no such file.

    Raises:
        ArrnError: for a file that does not describe a run.
    """
    path = folder / RUN_FILE
    if not path.exists():
        return None
    return settings_from(read_run_file(folder).get("settings"), str(path))


def settings_from(settings: object, where: str) -> RunSettings:
    """The settings that a file holds.

    Args:
        settings: what it holds.
        where: the file, for errors.

    Raises:
        ArrnError: for what does not describe a run.
    """
    expected: dict[str, Any] = {
        "dataset": str,
        "model": str,
        "options": dict,
        "recipe": dict,
        "seed": int,
        "holdout": int,
        "skip_bad": bool,
        "data": str | None,
        "window": int | float,
        "sample_rate": int | None,
        "aspect": str,
        "pretrained": bool,
        "keep": str,
    }
    if isinstance(settings, dict):  # runs from before there were sound, rectangles, a start from weights, a best epoch
        since = {"window": 1.0, "sample_rate": None, "aspect": "stretch", "pretrained": False, "keep": "last"}
        settings = since | settings
    if not isinstance(settings, dict) or set(settings) != set(expected):
        raise ArrnError(f"{where}: settings should have {', '.join(expected)}")
    for name, kind in expected.items():
        if not isinstance(settings[name], kind) or (kind is not bool and isinstance(settings[name], bool)):
            raise ArrnError(f"{where}: {name} has the wrong type, got {settings[name]!r:.80}")
    for name in ("dataset", "data"):
        if "\0" in (settings[name] or ""):
            raise ArrnError(f"{where}: {name} is not a path, got {settings[name]!r:.80}")
    try:
        return RunSettings(**(settings | {"recipe": PAPER_CIFAR.with_options(settings["recipe"])}))
    except ArrnError as error:
        raise ArrnError(f"{where}: {error}") from None


@dataclass(frozen=True)
class Machine:
    """How a run is carried out; its result does not depend on it, but for rounding and the order of streamed shards.

    Shards that are streamed are not shuffled as a set in memory is. What a run began with is kept when it goes on.

    Attributes:
        device: "auto", "cpu", "cuda" or "mps".
        stream: read samples as they are needed (True), keep them in memory (False), or as memory allows (None).
        workers: processes that read and decode what is streamed.
        compiled: whether the network goes through `torch.compile`.
        sync_batch_norm: with several processes, batch norms take their statistics over all of them; only on GPUs.
        captured: whether a GPU replays each step from a CUDA graph instead of being told its kernels one by one;
            without effect on other devices and with several processes.
        deterministic: the same bits each time on a GPU too.
        checkpoint_every: epochs between checkpoints; None is as the time goes (`arrn.training.loop`).
        tensorboard: also log for TensorBoard.
        max_pixels: of an image, or voxels of a volume; more are refused. None is 64 million.
        shuffle_memory: MiB of encoded samples that streamed shards are shuffled within, over all of up to 8 processes.
    """

    device: str = "auto"
    stream: bool | None = None
    workers: int = 2
    compiled: bool = False
    deterministic: bool = False
    checkpoint_every: float | None = None
    tensorboard: bool = False
    captured: bool = True
    sync_batch_norm: bool = False
    max_pixels: int | None = None
    shuffle_memory: int = 128

    def __post_init__(self) -> None:
        if not 0 <= self.workers <= MOST_WORKERS:
            raise ArrnError(f"the number of workers must be from 0 to {MOST_WORKERS}, got {self.workers!r:.40}")
        if not 1 <= self.shuffle_memory <= MOST_SHUFFLE_MEMORY:
            raise ArrnError(
                f"the memory to shuffle within must be from 1 to {MOST_SHUFFLE_MEMORY:,} MiB, got "
                f"{self.shuffle_memory!r:.40}"
            )
        every = self.checkpoint_every
        if every is not None and not (math.isfinite(every) and every > 0):
            raise ArrnError(f"the epochs between checkpoints must be a number above 0, got {every}")
