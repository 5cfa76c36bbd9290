"""Inference at every resolution: an ARRN with and without adaptation beside baselines, in each way."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import fx, nn

from arrn.benchmarks.floors import Ceilings, count_inference, dtype_name
from arrn.benchmarks.measurement import Attempt, Fact, Measurement, measure
from arrn.benchmarks.settings import BenchmarkSettings
from arrn.benchmarks.ways import (
    INFERENCE_WAYS,
    InferenceWay,
    class_count,
    inference_ways,
    input_shape,
    random_signal,
    replayed,
    to_inference,
    without_gradients,
)
from arrn.evaluation import default_resolutions
from arrn.models import create_model, model_options
from arrn.models.fixed import ResampledNetwork
from arrn.models.rivals import SwitchableBatchNorm2d
from arrn.nn.arrn import ARRN, EveryLevel
from arrn.nn.inference import Frozen, Shortcut, above_open_gates, fold_batch_norms
from arrn.nn.joining import join_activations
from arrn.nn.layers import Resampling
from arrn.nn.network import as_network, entry_grid, entry_kernel
from arrn.signal.grid import Grid, Size, as_grid, format_grid
from arrn.timing import rotating

_Program: TypeAlias = Callable[[torch.Tensor], torch.Tensor]

TEST_IMAGES = 10_000
"""The size of CIFAR-10's test set, for which times are also given."""


def benchmark_inference(settings: BenchmarkSettings, ceilings: Ceilings) -> list[Measurement]:
    """Times every way at every resolution; what belongs to one core is done together, so that it is compiled once."""
    model = settings.build().eval()
    shape = input_shape(model, 1)
    top = max(shape[2:])
    told = as_network(model)
    ladder = tuple(dict.fromkeys(max(grid) for grid in told.grids)) if told.adapts else (top,)
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
    return _note_falls(found)


def _measure_core(core: Core, batch: int, settings: BenchmarkSettings, ceilings: Ceilings) -> list[Measurement]:
    device, dtype = settings.device, settings.dtype
    ready = ReadyCore(core, device, dtype)
    ways = inference_ways(device, settings.compiled)
    found: list[Measurement] = []
    for case in core.cases:
        shape = (batch, core.in_channels, *case.grid)
        count = settings.inputs_beyond_the_cache(math.prod(shape) * dtype.itemsize)
        inputs = [random_signal(shape, device, dtype) for _ in range(count)]
        work = count_inference(core.needed(case), shape, dtype)
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
    return measured.noting(
        seconds_per_image=seconds,
        test_set_seconds=seconds * TEST_IMAGES,
        seconds_per_multiply_add=seconds / _whole_number(measured, "multiply_adds"),
    )


def _note_falls(measurements: Sequence[Measurement]) -> list[Measurement]:
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


def _noted(measured: Measurement, top: Measurement | None) -> Measurement:
    if measured.time is None or top is None or top.time is None:
        return measured
    time_falls = top.time.median / measured.time.median
    work_falls = _whole_number(top, "multiply_adds") / _whole_number(measured, "multiply_adds")
    return measured.noting(time_falls=time_falls, work_falls=work_falls, falls_kept=time_falls / work_falls)


def _line(facts: Mapping[str, Fact], way: str = "") -> tuple[Fact, ...]:
    return facts["batch"], facts["model"], facts["adapt"], way


def _resolution(measured: Measurement) -> int:
    return _whole_number(measured, "resolution")


def _whole_number(measured: Measurement, fact: str) -> int:
    number = measured.facts[fact]
    assert isinstance(number, int)
    return number


def last_way_of_all(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Of several networks, the times in the last way that all of them were measured in: none has an advantage."""
    timed = [m for m in measurements if m.time is not None]
    cases = {m.case for m in timed}
    for way in reversed(INFERENCE_WAYS):
        alike = [m for m in timed if m.way == way.name]
        if {m.case for m in alike} == cases:
            return alike
    return timed[:0]


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
        return self._behind_entrance(case, self.network)

    def needed(self, case: Case) -> nn.Module:
        """What must run for inputs of a case that have details in every band, as noise has."""
        above = above_open_gates(self.network) if case.adapt else None
        return self._behind_entrance(case, above or self.network)

    def _behind_entrance(self, case: Case, network: nn.Module) -> nn.Module:
        entrance = self.entrance(case)
        return network if entrance is None else nn.Sequential(entrance, network)

    def plain(self, case: Case) -> nn.Module:
        """The network as a user has it, for the inputs of a case."""
        return EveryLevel(self.model) if isinstance(self.model, ARRN) and not case.adapt else self.model


def _cores(name: str, network: nn.Module, sizes: Sequence[int]) -> list[Core]:
    if isinstance(network, ARRN):
        return arrn_cores(name, network, sizes)
    if isinstance(network, ResampledNetwork):
        return baseline_cores(name, network, sizes)
    return plain_cores(name, network, sizes)


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


def baseline_cores(name: str, model: ResampledNetwork, sizes: Sequence[int]) -> list[Core]:
    """One core for each of the network's own sizes that some input is brought to: one in all if it has one size."""
    grids = [as_grid(size, len(model.grids[0])) for size in sizes]
    cores = []
    for level, target in enumerate(model.grids):
        cases = [Case(grid) for grid in grids if entry_grid(model, grid) == target]
        if cases:
            network, folded = fold_baseline(model.network, level)
            cores.append(Core(name, model, network, target, cases, model.in_channels, folded))
    return cores


def plain_cores(name: str, model: nn.Module, sizes: Sequence[int]) -> list[Core]:
    """A network that takes any size, such as a neural operator: nothing is folded, each size is compiled anew."""
    channels = int(model.in_channels)  # type: ignore[arg-type]
    return [Core(name, model, model, None, [Case(as_grid(size, 2))], channels, folded=False) for size in sizes]


def fold_baseline(network: nn.Module, level: int = 0) -> tuple[nn.Module, bool]:
    """A copy in evaluation mode, prepared as `AdaptedARRN.fuse` does, and whether it could be traced for that.

    Of a switchable network, whose norms are private to each of its sizes, those of the size numbered `level`.
    """
    copied = copy.deepcopy(network).eval()
    for name, layer in list(copied.named_modules()):
        if isinstance(layer, SwitchableBatchNorm2d):
            copied.set_submodule(name, layer.norms[level])
    try:
        traced = fx.symbolic_trace(copied)
    except Exception:  # a tracer runs the network's own code, which may do anything
        return copied, False
    return join_activations(fold_batch_norms(traced)), True


def build_baseline(name: str, size: Size, num_classes: int, in_channels: int) -> nn.Module:
    """A network by name for the inputs of another."""
    wanted: dict[str, Any] = {"size": size, "num_classes": num_classes, "in_channels": in_channels}
    known = model_options(name)
    torch.manual_seed(0)
    return create_model(name, **{option: value for option, value in wanted.items() if option in known})


class ReadyCore:
    """A core on its device, from which every way of running it is prepared."""

    def __init__(self, core: Core, device: torch.device, dtype: torch.dtype) -> None:
        self._core, self._device, self._dtype = core, device, dtype
        self._network = to_inference(copy.deepcopy(core.network), len(core.cases[0].grid), device, dtype)
        self._above = above_open_gates(self._network)
        self._compiled: dict[nn.Module, Frozen] = {}
        self._failure: Exception | None = None

    def prepare(self, way: InferenceWay, case: Case, inputs: Sequence[torch.Tensor]) -> Callable[[], object]:
        """The call to time: one batch after another, without gradients."""
        x = inputs[0]
        if not way.fused:
            plain = to_inference(copy.deepcopy(self._core.plain(case)), len(case.grid), self._device, self._dtype)
            return rotating(self._ready(plain, way, x), inputs)
        whole = self._ready(self._entered(self._network, case, way.compiled, x), way, x)
        # On a CPU, layers see for themselves what may be left out, unless they are compiled.
        if self._above is None or not (way.compiled or self._device.type != "cpu"):
            return rotating(whole, inputs)
        above = self._ready(self._entered(self._above, case, way.compiled, x), way, x)
        return rotating(Shortcut(whole, above), inputs)

    @staticmethod
    def _ready(program: _Program, way: InferenceWay, x: torch.Tensor) -> _Program:
        run = without_gradients(program)
        return replayed(run, x) if way.captured else run

    def _entered(self, program: nn.Module, case: Case, compiled: bool, x: torch.Tensor) -> _Program:
        """A program behind the entrance of a case. It stays as it is: graphs and compiled code point into it."""
        entrance = self._core.entrance(case)
        if entrance is None:
            return self._compile(program, x) if compiled else program
        enter = entrance.to(device=self._device, dtype=self._dtype)
        core = self._compile(program, enter(x)) if compiled else program
        return lambda x: core(enter(x))

    def _compile(self, program: nn.Module, x: torch.Tensor) -> _Program:
        """The compiled program; where compiling failed once, it is not tried again for every size."""
        if self._failure is not None:
            raise self._failure
        if program not in self._compiled:
            compiled = Frozen(program)
            try:
                without_gradients(compiled)(x)
            except Exception as error:
                self._failure = error
                raise
            self._compiled[program] = compiled
        return self._compiled[program]
