"""What the demonstration trains and measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from arrn.evaluation import Report
from arrn.nn import ARRN, count_parameters, multiply_adds
from arrn.runs import Machine, RunSettings, evaluate_run, load_network, run_training
from arrn.signal import resample
from arrn.testing import adaptation_discrepancy
from arrn.timing import Timing, time_call
from arrn.training import Recipe, Watcher

RESOLUTIONS = (32, 24, 16, 12, 8)
BATCH = 64
COST_COLUMNS = ("input", "grid", "levels run", "parameters", "multiply-adds", "time", "speed-up", "error")


@dataclass(frozen=True)
class Contender:
    """A network of the demonstration.

    Attributes:
        title: what the table and the plot call it.
        short: what it is called where there is little room.
        folder: of its run, within the demonstration's.
        model: its name.
        options: of the model.
    """

    title: str
    short: str
    folder: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)


CONTENDERS = (
    Contender("ARRN with Laplacian dropout", "dropout", "arrn-dropout", "arrn_small"),
    Contender("ARRN without it", "without", "arrn-plain", "arrn_small", {"dropout": 0.0}),
    # As many multiply-adds as arrn_small has at 32x32, to within 20%; a test holds it to that.
    Contender("ResNet18, narrow", "ResNet18", "resnet18", "resnet18_small_stem", {"width": 9}),
)


def train_and_evaluate(
    contender: Contender, out: Path, epochs: int, machine: Machine, watcher: Watcher | None, say: Callable[[str], None]
) -> Report:
    """Trains a contender on the sample, or goes on where it was interrupted, and evaluates it."""
    recipe = Recipe(epochs=epochs, batch_size=64, learning_rate=5e-3)
    settings = RunSettings("sample", contender.model, contender.options, recipe)
    folder = out / contender.folder
    run_training(settings, folder, machine, resume=folder.exists(), watcher=watcher, say=say)
    return evaluate_run(folder, RESOLUTIONS, policies=["exact"], adapt=[True], device=machine.device)


@dataclass(frozen=True)
class Cost:
    """What an ARRN needs for one input resolution.

    Attributes:
        resolution: of the input.
        grid: on which it enters.
        levels: how many levels run.
        parameters: that these levels have.
        multiply_adds: for one image.
        time: for a batch of `BATCH`.
        error: adapted against full evaluation of the same input, relative to the logits.
    """

    resolution: int
    grid: int
    levels: int
    parameters: int
    multiply_adds: int
    time: Timing
    error: float

    def cells(self, top: Cost) -> list[str]:
        """A row of a table, under `COST_COLUMNS`; `top` is the cost at the highest resolution."""
        return [
            f"{self.resolution}x{self.resolution}",
            str(self.grid),
            f"{self.levels} of {top.levels}",
            f"{self.parameters:,}",
            f"{self.multiply_adds / 1e6:.1f} M",
            str(self.time),
            f"{top.time.median / self.time.median:.1f}x",
            f"{self.error:.0e}",
        ]


@torch.no_grad()
def measure_costs(folder: Path) -> list[Cost]:
    """The costs of the ARRN in `folder` at each resolution, on the CPU, and how exact skipping is."""
    model, _, _ = load_network(folder, torch.device("cpu"))
    assert isinstance(model, ARRN)
    costs = []
    top = torch.randn(BATCH, model.in_channels, *model.grids[0])
    for resolution in RESOLUTIONS:
        x = resample(top, resolution).contiguous(memory_format=torch.channels_last)
        adapted, level = model.at_resolution(resolution), model.level(resolution)
        costs.append(
            Cost(
                resolution,
                model.grids[level][0],
                len(model.levels) - level + 1,
                count_parameters(adapted),
                multiply_adds(adapted, (1, *x.shape[1:])),
                time_call(partial(adapted, x)),
                adaptation_discrepancy(model, x),
            )
        )
    return costs
