"""How much faster a network gets from its largest input down, against how much less it computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from arrn.benchmarks.floors import Ceilings, count_inference, dtype_name
from arrn.benchmarks.measurement import Attempt, Fact, Measurement, measure, replayed
from arrn.benchmarks.settings import BenchmarkSettings
from arrn.benchmarks.ways import (
    INFERENCE_WAYS,
    InferenceWay,
    build_baseline,
    class_count,
    fold_baseline,
    inference_ways,
    input_shape,
    on_device,
    random_signal,
    without_gradients,
)
from arrn.evaluation import default_resolutions
from arrn.models.entry import entry_grid, entry_kernel
from arrn.models.fixed import FixedResolution
from arrn.nn.adapted import Frozen
from arrn.nn.arrn import ARRN, EveryLevel
from arrn.nn.resampling import Resampling
from arrn.signal.grid import Grid, as_grid, format_grid
from arrn.timing import in_turn


def note_falls(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Adds to each time of inference by what factor time and multiply-adds fall from the largest resolution.

    `time_falls` and `work_falls` are factors of 1 or more where things fall, `falls_kept` is the one over the
    other: 1 where all the arithmetic that is saved is saved time. What belongs to one line comes together, from the
    largest resolution down.
    """
    tops: dict[tuple[Fact, ...], Measurement] = {}
    for measured in measurements:
        line = _line(measured.facts, measured.way)
        if measured.time is not None and (line not in tops or _resolution(measured) > _resolution(tops[line])):
            tops[line] = measured
    noted = [_noted(measured, tops.get(_line(measured.facts, measured.way))) for measured in measurements]
    lines = list(dict.fromkeys(_line(measured.facts) for measured in noted))
    return sorted(noted, key=lambda measured: (lines.index(_line(measured.facts)), -_resolution(measured)))


def _line(facts: Mapping[str, Fact], way: str = "") -> tuple[Fact, ...]:
    return facts["batch"], facts["model"], facts["adapt"], way


def _resolution(measured: Measurement) -> int:
    resolution = measured.facts["resolution"]
    assert isinstance(resolution, int)
    return resolution


def _noted(measured: Measurement, top: Measurement | None) -> Measurement:
    if measured.time is None or top is None or top.time is None:
        return measured
    most, work = top.facts["multiply_adds"], measured.facts["multiply_adds"]
    assert isinstance(most, int)
    assert isinstance(work, int)
    time_falls, work_falls = top.time.median / measured.time.median, most / work
    return measured.noting(time_falls=time_falls, work_falls=work_falls, falls_kept=time_falls / work_falls)


@dataclass(frozen=True)
class Case:
    """Inputs of one grid; `adapt` is whether an ARRN skips levels, None for other networks."""

    grid: Grid
    adapt: bool | None = None


@dataclass(frozen=True)
class Core:
    """A fused network on a grid of its own, and the inputs that are brought there.

    Attributes:
        name: the model's.
        model: the whole network as a user has it.
        network: the fused one.
        grid: what the fused one takes; None for whatever its inputs have.
        cases: the inputs.
        in_channels: of the inputs.
        folded: whether batch norms could be folded.
    """

    name: str
    model: nn.Module
    network: nn.Module
    grid: Grid | None
    cases: Sequence[Case]
    in_channels: int
    folded: bool = True

    def entrance(self, case: Case) -> Resampling | None:
        """What brings the inputs of a case to the core's grid; None where they are there."""
        if self.grid is None or case.grid == self.grid:
            return None
        return Resampling(case.grid, self.grid, entry_kernel(self.model))

    def fused(self, case: Case) -> nn.Module:
        """The fused network for the inputs of a case."""
        entrance = self.entrance(case)
        return self.network if entrance is None else nn.Sequential(entrance, self.network)

    def plain(self, case: Case) -> nn.Module:
        """The network as a user has it, for the inputs of a case."""
        return EveryLevel(self.model) if isinstance(self.model, ARRN) and not case.adapt else self.model


class ReadyCore:
    """A core on its device, from which every way of running it is prepared."""

    def __init__(self, core: Core, device: torch.device, dtype: torch.dtype) -> None:
        self._core, self._device, self._dtype = core, device, dtype
        self._network = on_device(core.network, len(core.cases[0].grid), device, dtype)
        self._compiled: Callable[[torch.Tensor], torch.Tensor] | None = None
        self._failure: Exception | None = None

    def prepare(self, way: InferenceWay, case: Case, inputs: Sequence[torch.Tensor]) -> Callable[[], object]:
        """The call to time: one batch after another, without gradients."""
        if way.fused:
            network = self._entered(case, way.compiled, inputs[0])
        else:
            network = on_device(self._core.plain(case), len(case.grid), self._device, self._dtype)
        run = without_gradients(network)
        return in_turn(replayed(run, inputs[0]) if way.captured else run, inputs)

    def _entered(self, case: Case, compiled: bool, x: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        """The core behind the entrance of a case. The core stays as it is: graphs and compiled code point into it."""
        entrance = self._core.entrance(case)
        if entrance is None:
            return self._compile(x) if compiled else self._network
        enter = entrance.to(device=self._device, dtype=self._dtype)
        core = self._compile(enter(x)) if compiled else self._network
        return lambda x: core(enter(x))

    def _compile(self, x: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        """The compiled core; where compiling failed once, it is not tried again for every size."""
        if self._failure is not None:
            raise self._failure
        if self._compiled is None:
            compiled = Frozen(self._network)
            try:
                without_gradients(compiled)(x)
            except Exception as error:
                self._failure = error
                raise
            self._compiled = compiled
        return self._compiled


def arrn_cores(name: str, model: ARRN, sizes: Sequence[int]) -> list[Core]:
    """One core for each level that some size enters at; the top one also runs all levels for every size."""
    grids = [as_grid(size, model.ndim) for size in sizes]
    cores = []
    for target in model.grids:
        cases = [Case(grid, True) for grid in grids if entry_grid(model, grid) == target]
        if target == model.grids[0]:
            cases += [Case(grid, False) for grid in grids]
        if cases:
            fused = model.at_resolution(target).fuse()
            cores.append(Core(name, model, fused, target, cases, model.in_channels))
    return cores


def baseline_core(name: str, model: FixedResolution, sizes: Sequence[int]) -> Core:
    """A fixed-resolution network: every input is brought to its one size."""
    (grid,) = model.grids
    network, folded = fold_baseline(model.network)
    cases = [Case(as_grid(size, len(grid))) for size in sizes]
    return Core(name, model, network, grid, cases, model.in_channels, folded)


def plain_cores(name: str, model: nn.Module, sizes: Sequence[int]) -> list[Core]:
    """A network that takes any size, such as a neural operator: nothing is folded, each size is compiled anew."""
    channels = int(model.in_channels)  # type: ignore[arg-type]
    return [Core(name, model, model, None, [Case(as_grid(size, 2))], channels, folded=False) for size in sizes]


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
