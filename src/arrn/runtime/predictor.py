"""`Predictor`: inputs of any kind and of different sizes in, answers out, whatever computes the network."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from ..errors import ArrnError
from .answers import Answer, AnswerList, check_top, make_answer
from .aspect import as_aspect
from .cascade import Cascade, Climb, check_threshold
from .elements import notebook_table, share_bar
from .files import Array
from .levels import Grid, Policy, as_policy, format_grid, level_of
from .signals import WORDS, Reader, Signal, is_array

_TOGETHER = 64  # inputs at most that are kept, and run at once
_NUMBERS = 2**27  # of the inputs that are kept: half a gigabyte in float32
_PLACES = 2**22  # of the grids of a batch: 64 images of 256x256, or 16 volumes of 64x64x64


class Predictor(ABC):
    """A network that classifies inputs of any sizes, mixed. Threads may share one predictor.

    Inputs that enter the network on the same grid run together, a bounded number at a time; the answers come in the
    order of the inputs. Engines derive from this class: an engine defines `run`, and `prepare` if there is something
    to set up.

    Args:
        grids: the grids of the network's levels, highest first; empty for a network that takes any size as it is.
        ndim: the number of axes of space.
        channels: the number of channels of the inputs.
        class_names: a name for each class; None if classes have no names.
        window: the length of an input of sound, in seconds.
        policy: the level for inputs between two grids: "exact" or "cheap".
        costs: multiply-adds of one input at each level, highest first; None if they are not known.
        cascade: the calibration of the cascade, which `budget` needs; None if the cascade was not calibrated.
        max_pixels: refuse images of more pixels, or volumes of more voxels. None is 64 million.
        aspect: how to fit inputs of other proportions than the grids: "stretch", "pad" or "crop".
    """

    device: Any = "cpu"

    def __init__(
        self,
        *,
        grids: Sequence[Grid],
        ndim: int,
        channels: int,
        class_names: Sequence[str] | None = None,
        window: float | None = None,
        policy: Policy = "exact",
        costs: Sequence[int] | None = None,
        cascade: Cascade | None = None,
        max_pixels: int | None = None,
        aspect: str = "stretch",
    ) -> None:
        self.grids: tuple[Grid, ...] = tuple(grids)
        self.adapts = len(self.grids) > 1
        self.ndim = ndim
        self.channels = channels
        self.class_names = None if class_names is None else tuple(class_names)
        self.window = window
        self.policy = as_policy(policy)
        self.costs = None if costs is None else tuple(costs)
        self.cascade = cascade
        top = self.grids[0] if self.grids else None
        self.reader = Reader(ndim, channels, top, window or 1.0, max_pixels, as_aspect(aspect))

    @property
    def kind(self) -> str:
        """What the inputs are: "sound", "image" or "volume"."""
        return WORDS[self.ndim]

    @abstractmethod
    def run(self, level: int, signals: Sequence[Array]) -> Array:
        """The probabilities of the classes, float32 of shape (signals, classes), by the network from `level` down.

        Args:
            level: the number of a level, 0 for the highest. Signals are smoothed or interpolated to its grid.
            signals: at least one signal, as `Signal.samples` holds it. Signals may differ in size.

        Several threads may call `run` at the same time.
        """

    def prepare(self, level: int, count: int) -> None:  # noqa: B027 - some engines have nothing to do
        """Called before `run` with `count` signals: does the work of the first run alone, outside the measured time."""

    def cost(self, level: int) -> int | None:
        """Multiply-adds of one input on the grid of `level`; None if they are not known."""
        return None if self.costs is None else self.costs[level]

    def read(self, given: object, where: str | None = None) -> Signal:
        """An input as `run` takes it: see `Reader.read`. Raises `BadSample` for an input that cannot be read."""
        return self.reader.read(given, where)

    def level_of(self, size: Grid) -> int:
        """The number of the level at which an input of that size enters, by the policy; 0 is the highest level."""
        return level_of(self.grids, size, self.policy) if self.grids else 0

    def entry_grid(self, size: Grid, level: int) -> Grid:
        """The grid on which an input of that size enters `level`."""
        return self.grids[level] if self.grids else size

    @overload
    def __call__(
        self,
        inputs: list[Any] | tuple[Any, ...] | Iterator[Any],
        *,
        top: int = ...,
        budget: float | None = ...,
        threshold: float | None = ...,
    ) -> AnswerList: ...

    @overload
    def __call__(
        self, inputs: object, *, top: int = ..., budget: float | None = ..., threshold: float | None = ...
    ) -> Any: ...

    def __call__(
        self, inputs: object, *, top: int = 1, budget: float | None = None, threshold: float | None = None
    ) -> Any:
        """The answer to one input, or a list of answers to several inputs.

        Args:
            inputs: one input; a list, a tuple or an iterator of inputs; or an array of inputs along its first axis.
                An input is a path, the bytes of a file, an image of Pillow, an array or a tensor (`Reader.read`).
            top: the number of classes in each answer, most probable first.
            budget: run the cascade with this average cost, in million multiply-adds for an input. The levels and the
                threshold are the most accurate choice that kept this budget in the calibration.
            threshold: run the cascade over all levels with this threshold, from 0 to 1. Each input starts at the lowest
                level, and climbs until the probability of a class reaches the threshold, at most to the level of the
                input's size. Without `budget` and `threshold`, only the level of the input's size runs.

        Raises:
            ArrnError: for an input that cannot be read. `stream` returns the error and continues with other inputs.
        """
        many = _as_many(inputs, self.ndim)
        found = AnswerList()
        for answer in self.stream([inputs] if many is None else many, top=top, budget=budget, threshold=threshold):
            if isinstance(answer, ArrnError):
                raise answer
            found.append(answer)
        return found[0] if many is None else found

    def stream(
        self,
        inputs: Iterable[object],
        *,
        top: int = 1,
        budget: float | None = None,
        threshold: float | None = None,
    ) -> Iterator[Answer | ArrnError]:
        """Answers in the order of the inputs. For an input that cannot be read, the error takes the answer's place.

        Inputs are read a few at a time and released once they are answered, so that any number of files fits into
        memory. An `ArrnError` among the inputs is passed on, for inputs that the caller could not find.
        """
        check_top(top)
        chosen = self.climb_for(budget, threshold)
        return self._stream(inputs, top, chosen)

    def _stream(self, inputs: Iterable[object], top: int, climb: Climb | None) -> Iterator[Answer | ArrnError]:
        group: list[Signal | ArrnError] = []
        numbers = 0
        for given in inputs:
            try:
                if isinstance(given, ArrnError):
                    raise given
                signal = self.read(given)
                group.append(signal)
                numbers += signal.samples.size
                del signal
            except ArrnError as error:
                group.append(error)
            if len(group) >= _TOGETHER or numbers >= _NUMBERS:
                yield from self._answer(group, top, climb)
                group, numbers = [], 0
        yield from self._answer(group, top, climb)

    def climb_for(self, budget: float | None, threshold: float | None) -> Climb | None:
        """The climb that is asked for; None for no cascade."""
        if budget is None:
            return None if threshold is None else Climb(check_threshold(threshold))
        if threshold is not None:
            raise ArrnError(f"give either a budget or a threshold, got budget={budget} and threshold={threshold}")
        if self.cascade is None:
            raise ArrnError(
                "a budget needs a calibrated cascade: run `arrn evaluate FOLDER --cascade` once, or give a threshold "
                "between 0 and 1"
            )
        if self.cascade.policy != self.policy:
            raise ArrnError(
                f"the cascade was calibrated for the policy {self.cascade.policy!r}, and this predictor has "
                f"{self.policy!r}: calibrate the cascade again, or give a threshold"
            )
        climb = self.cascade.climb_for(budget)
        if climb is not None and climb.levels is not None and max(climb.levels) >= len(self.grids):
            raise ArrnError(
                f"the cascade was calibrated for a network of more levels than the {len(self.grids)} of this one: "
                "calibrate the cascade again, or give a threshold"
            )
        return climb

    def _answer(self, group: Sequence[Signal | ArrnError], top: int, climb: Climb | None) -> list[Answer | ArrnError]:
        found: list[Answer | ArrnError | None] = [each if isinstance(each, ArrnError) else None for each in group]
        signals = {place: each for place, each in enumerate(group) if isinstance(each, Signal)}
        runs = {}
        for place, signal in signals.items():
            own = self.level_of(signal.size)
            runs[place] = _Run([own] if climb is None else climb.visits(own, len(self.grids)))
        waiting = {place: run.levels.pop() for place, run in runs.items()}
        while waiting:
            by_level: defaultdict[int, list[int]] = defaultdict(list)
            for place, level in waiting.items():
                by_level[level].append(place)
            waiting = {}
            for level, places in by_level.items():
                rows, seconds = self.run_bounded(level, [signals[place] for place in places])
                cost = self.cost(level)
                for place, row in zip(places, rows, strict=True):
                    run = runs[place]
                    run.seconds += seconds
                    run.multiply_adds += cost or 0
                    if climb is not None and run.levels and float(row.max()) < climb.threshold:
                        waiting[place] = run.levels.pop()
                        continue
                    signal = signals[place]
                    found[place] = make_answer(
                        row,
                        self.class_names,
                        size=signal.given or signal.size,
                        level=self.entry_grid(signal.size, level),
                        top=top,
                        seconds=run.seconds,
                        multiply_adds=None if cost is None else run.multiply_adds,
                    )
        return [each for each in found if each is not None]

    def run_bounded(self, level: int, signals: Sequence[Signal]) -> tuple[list[Array], float]:
        """Probabilities of each signal, by runs of a bounded size, and the seconds of one."""
        places = max(_count(self.entry_grid(signal.size, level)) for signal in signals)
        many = max(1, min(_TOGETHER, _PLACES // places))
        rows: list[Array] = []
        seconds = 0.0
        for first in range(0, len(signals), many):
            batch = [signal.samples for signal in signals[first : first + many]]
            self.prepare(level, len(batch))
            began = time.perf_counter()
            rows += [*self.run(level, batch)]
            seconds += time.perf_counter() - began
        return rows, seconds / len(signals)

    def _repr_html_(self) -> str:
        """A table of the levels, for notebooks."""
        costs = [self.cost(n) for n in range(len(self.grids))]
        most = max((cost or 0 for cost in costs), default=0)
        rows = [
            (
                str(n),
                format_grid(grid),
                "" if cost is None else f"{cost / 1e6:.1f}",
                share_bar((cost or 0) / (most or 1)),
            )
            for n, (grid, cost) in enumerate(zip(self.grids, costs, strict=True))
        ]
        return notebook_table(("level", "grid", "million multiply-adds", ""), rows, title=repr(self), right=(0, 1, 2))

    def __repr__(self) -> str:
        levels = " -> ".join(map(format_grid, self.grids)) or "any size"
        classes = "" if self.class_names is None else f", {len(self.class_names)} classes"
        return f"{type(self).__name__}({self.kind}, {levels}, {self.policy}{classes})"


@dataclass
class _Run:
    """What an input has taken so far, and the levels that it may still climb to, the next one last."""

    levels: list[int]
    seconds: float = 0.0
    multiply_adds: int = 0


def _count(grid: Grid) -> int:
    places = 1
    for side in grid:
        places *= side
    return places


def _as_many(inputs: Any, ndim: int) -> Iterable[object] | None:
    """The inputs one by one; None for what is a single one."""
    rows = is_array(inputs) and len(inputs.shape) == ndim + 2
    return iter(inputs) if rows or isinstance(inputs, list | tuple | Iterator) else None
