"""Networks as they are deployed: PyTorch, ONNX Runtime and its 8-bit files, by size of input and number of threads."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from arrn.benchmarks.floors import Ceilings
from arrn.benchmarks.inference import build_baseline, fold_baseline
from arrn.benchmarks.measurement import Attempt, Fact, Measurement, measure
from arrn.benchmarks.settings import BenchmarkSettings
from arrn.benchmarks.ways import class_count, input_shape, to_inference
from arrn.deploy.export import costs_of, described, noise
from arrn.deploy.parts import LevelProgram, Parts, take_apart
from arrn.errors import ArrnError, needs
from arrn.metadata import Metadata
from arrn.models.fixed import FixedResolution
from arrn.nn.arrn import ARRN
from arrn.nn.network import config_of
from arrn.runtime.levels import level_of
from arrn.runtime.onnx_engine import open_session
from arrn.saving import load
from arrn.signal.grid import Grid, as_grid, format_grid
from arrn.signal.resample import resample

_CALIBRATED = 16  # inputs of noise: the ranges they give do not change how long a file takes
_TOGETHER = 8


def benchmark_deploy(settings: BenchmarkSettings, ceilings: Ceilings) -> list[Measurement]:
    """Times each level of the network and, on inputs of the same sizes, the baselines: on one thread, and on all.

    Every way takes numbers as they are stored to probabilities, normalisation and resampling included. On other
    devices than a CPU nothing is measured.
    """
    if settings.device.type != "cpu":
        return []
    model = (settings.build() if settings.network is None else load(settings.network)).eval()
    shape = input_shape(model, 1)
    sizes = [as_grid(size, len(shape) - 2) for size in settings.resolutions] or list(model.grids)  # type: ignore[arg-type]
    name = str(config_of(model)["name"])
    rivals = [each for each in dict.fromkeys(settings.baselines) if len(shape) == 4 and each != name]
    networks = {name: model}
    networks |= {each: build_baseline(each, shape[2:], class_count(model), shape[1]).eval() for each in rivals}
    threads = sorted({1, os.cpu_count() or 1})
    found: list[Measurement] = []
    for each, network in networks.items():
        with tempfile.TemporaryDirectory() as place:
            try:
                ready = ReadyNetwork(network, Path(place))
            except ArrnError:  # of the few that cannot be exported
                continue
            for size in sizes:
                for batch in settings.batches_or(cuda=(8, 1), others=(8, 1)):
                    for count in threads:
                        found += _measure(each, ready, size, batch, count, settings, ceilings)
    return found


def _measure(
    name: str,
    ready: ReadyNetwork,
    size: Grid,
    batch: int,
    threads: int,
    settings: BenchmarkSettings,
    ceilings: Ceilings,
) -> list[Measurement]:
    level = ready.level_of(size)
    signals = noise(ready.parts, batch, size)
    attempts = [
        Attempt("PyTorch", partial(ready.in_torch, level, signals)),
        Attempt("ONNX Runtime", partial(ready.in_onnxruntime, level, signals, threads, False)),
        Attempt("ONNX Runtime, 8 bits", partial(ready.in_onnxruntime, level, signals, threads, True)),
    ]
    case = f"{name} at {format_grid(size)}, batch {batch}, {threads} thread{'s'[: threads != 1]}"
    facts: dict[str, Fact] = {
        "model": name,
        "resolution": max(size),
        "level": format_grid(ready.parts.grids[level]),
        "adapt": True if ready.adapts else None,
        "batch": batch,
        "threads": threads,
        "dtype": "float32",
        "multiply_adds": ready.costs[level][1],
    }
    with torch_threads(threads):
        measured = measure("deploy", case, attempts, settings, ceilings, facts)
    return [each if each.time is None else each.noting(seconds_per_image=each.time.median / batch) for each in measured]


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Within it, PyTorch uses so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _folded(network: nn.Module) -> nn.Module:
    """A network of one resolution with its batch norms folded, as the exporters and an ARRN's levels fold theirs."""
    if not isinstance(network, FixedResolution):
        return network
    copied = copy.deepcopy(network)
    copied.network = fold_baseline(network.network)[0]
    return copied


class ReadyNetwork:
    """A network taken apart, and its exported files, each written when it is first needed.

    Args:
        network: in evaluation mode.
        folder: for the files.
    """

    def __init__(self, network: nn.Module, folder: Path) -> None:
        channels = input_shape(network, 1)[1]
        known = getattr(network, "metadata", None)
        if known is None or known.mean is None:
            known = Metadata(mean=(0.5,) * channels, std=(0.25,) * channels)
        self.parts: Parts = take_apart(_folded(network), known)
        self.costs = costs_of(self.parts)
        self.adapts = isinstance(network, ARRN)
        self._folder = folder
        self._exporting: Parts = take_apart(network, known, keep_shared=True)  # which changes for exporters

    def level_of(self, size: Grid) -> int:
        """The level at which an input of that size enters."""
        return level_of(self.parts.grids, size, self.parts.policy)

    def in_torch(self, level: int, signals: np.ndarray[Any, Any]) -> Callable[[], object]:
        """The call that answers by PyTorch."""
        grid, kernel = self.parts.grids[level], self.parts.kernel
        program = LevelProgram(self.parts, level)
        run = to_inference(program, self.parts.ndim, torch.device("cpu"), torch.float32)
        x = torch.from_numpy(signals)

        def answer() -> torch.Tensor:
            with torch.no_grad():
                answers: torch.Tensor = run(resample(x, grid, kernel))
                return answers

        return answer

    def in_onnxruntime(
        self, level: int, signals: np.ndarray[Any, Any], threads: int, int8: bool
    ) -> Callable[[], object]:
        """The call that answers by ONNX Runtime, from the level's own file or from its 8-bit form."""
        path = self._eight_bits(level) if int8 else self._file(level)
        session = open_session(self._folder, described(path, path.read_bytes()), threads)
        return lambda: session.run(None, {"signal": signals})

    def _file(self, level: int) -> Path:
        path = self._folder / f"{level}.onnx"
        if not path.exists():
            with needs("onnx and onnxscript", "exporting to ONNX", "onnx"):
                from arrn.deploy.onnx_program import OnnxPrograms

            programs = OnnxPrograms(self._exporting, range(len(self.parts.grids)))
            for each in range(len(self.parts.grids)):
                (self._folder / f"{each}.onnx").write_bytes(programs.level_file(each).SerializeToString())
        return path

    def _eight_bits(self, level: int) -> Path:
        path = self._folder / f"{level}-int8.onnx"
        if not path.exists():
            from arrn.deploy.onnx_program import entrance_name
            from arrn.deploy.quantising import quantise

            grid = self.parts.grids[level]
            batches: Sequence[np.ndarray[Any, Any]] = [
                noise(self.parts, _TOGETHER, grid, seed) for seed in range(_CALIBRATED // _TOGETHER)
            ]
            path.write_bytes(quantise(self._file(level), batches, entrance_name(grid)))
        return path
