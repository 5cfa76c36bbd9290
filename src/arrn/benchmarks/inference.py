"""Evaluation at each resolution, with and without adaptation, beside baselines that are treated alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch

from arrn.benchmarks.ceilings import Ceilings, dtype_name
from arrn.benchmarks.cores import Core, ReadyCore, arrn_cores, baseline_core, plain_cores
from arrn.benchmarks.falling import note_falls
from arrn.benchmarks.measurement import Fact, Measurement
from arrn.benchmarks.measuring import Attempt, measure
from arrn.benchmarks.networks import build_baseline, class_count, input_shape, random_signal
from arrn.benchmarks.settings import BenchmarkSettings
from arrn.benchmarks.ways import INFERENCE_WAYS, inference_ways
from arrn.benchmarks.work import count_inference
from arrn.evaluation import default_resolutions
from arrn.models.fixed import FixedResolution
from arrn.nn.arrn import ARRN
from arrn.signal.grid import format_grid

__all__ = ["TEST_IMAGES", "benchmark_inference", "last_way_of_all"]

TEST_IMAGES = 10_000
"""The size of CIFAR-10's test set, for which times are also given."""


def benchmark_inference(settings: BenchmarkSettings, ceilings: Ceilings) -> list[Measurement]:
    """Times every way at every resolution; what belongs to one core is done together, so that it is compiled once."""
    model = settings.build().eval()
    shape = input_shape(model, 1)
    top = max(shape[2:])
    ladder = tuple(dict.fromkeys(max(grid) for grid in model.grids)) if isinstance(model, ARRN) else (top,)
    sizes = settings.resolutions or (ladder if settings.quick else default_resolutions(model, top))
    # A baseline's time hardly depends on the size of its inputs.
    fewer = settings.resolutions or sorted({*ladder, min(sizes)}, reverse=True)
    images = len(shape) == 4  # what the baselines take
    rivals = [name for name in dict.fromkeys(settings.baselines) if images and name != settings.model]
    built = {name: build_baseline(name, shape[2:], class_count(model), shape[1]) for name in rivals}
    found: list[Measurement] = []
    for batch in settings.batches_or(cuda=(1000, 1), others=(8, 1)):
        for name, network in {settings.model: model, **built}.items():
            for core in _cores(name, network.eval(), sizes if network is model else fewer):
                found += _measure_core(core, batch, settings, ceilings)
                if settings.compiled:
                    torch.compiler.reset()  # a core has its own compiled code; past eight of them torch gives up
    return note_falls(found)


def last_way_of_all(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Of several networks, the times in the last way that all of them were measured in: none has an advantage."""
    timed = [m for m in measurements if m.time is not None]
    cases = {m.case for m in timed}
    for way in reversed(INFERENCE_WAYS):
        alike = [m for m in timed if m.way == way.name]
        if {m.case for m in alike} == cases:
            return alike
    return timed[:0]


def _cores(name: str, network: torch.nn.Module, sizes: Sequence[int]) -> list[Core]:
    if isinstance(network, ARRN):
        return arrn_cores(name, network, sizes)
    if isinstance(network, FixedResolution):
        return [baseline_core(name, network, sizes)]
    return plain_cores(name, network, sizes)


def _measure_core(core: Core, batch: int, settings: BenchmarkSettings, ceilings: Ceilings) -> list[Measurement]:
    device, dtype = settings.device, settings.dtype
    ready = ReadyCore(core, device, dtype)
    ways = inference_ways(device, settings.compiled)
    found: list[Measurement] = []
    for case in core.cases:
        shape = (batch, core.in_channels, *case.grid)
        count = settings.inputs_beyond_the_cache(math.prod(shape) * dtype.itemsize)
        inputs = [random_signal(shape, device, dtype) for _ in range(count)]
        work = count_inference(core.fused(case), shape, dtype)
        attempts = [Attempt(w.name, partial(ready.prepare, w, case, inputs), work, kernels=w.fused) for w in ways]
        how = {None: "", True: ", adapted", False: ", all levels"}[case.adapt]
        name = f"{core.name} at {format_grid(case.grid)}{how}, batch {batch}"
        facts: dict[str, Fact] = {
            "model": core.name,
            "resolution": max(case.grid),
            "adapt": case.adapt,
            "batch": batch,
            "dtype": dtype_name(dtype),
            "folded": core.folded,
            "multiply_adds": work.multiply_adds // batch,
        }
        measured = measure("inference", name, attempts, settings, ceilings, facts)
        found += [_per_image(each, batch) for each in measured]
    return found


def _per_image(measured: Measurement, batch: int) -> Measurement:
    if measured.time is None:
        return measured
    seconds = measured.time.median / batch
    work = measured.facts["multiply_adds"]
    assert isinstance(work, int)
    return measured.noting(
        seconds_per_image=seconds, test_set_seconds=seconds * TEST_IMAGES, seconds_per_multiply_add=seconds / work
    )
