"""The part of a network that inputs of several sizes share: compiled once, timed at each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from arrn.benchmarks.capture import replayed
from arrn.benchmarks.networks import fold_baseline, on_device, without_gradients
from arrn.benchmarks.ways import InferenceWay
from arrn.models.entry import entry_grid, entry_kernel
from arrn.models.fixed import FixedResolution
from arrn.nn.arrn import ARRN
from arrn.nn.every_level import EveryLevel
from arrn.nn.frozen import Frozen
from arrn.nn.resampling import Resampling
from arrn.signal.grid import Grid, as_grid
from arrn.timing import in_turn

__all__ = ["Case", "Core", "ReadyCore", "arrn_cores", "baseline_core", "plain_cores"]


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
