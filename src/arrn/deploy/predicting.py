"""`Predictor` in torch: one fused network for each level, built when it is first needed."""

from __future__ import annotations

import copy
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from arrn.deploy.calibration import read_cascade
from arrn.errors import ArrnError, first_line
from arrn.gpu import Replay
from arrn.hub import locate
from arrn.metadata import Metadata
from arrn.models.fixed import FixedResolution
from arrn.nn.arrn import ARRN, AdaptedARRN
from arrn.nn.backbone import Backbone
from arrn.nn.inference import Frozen, Shortcut
from arrn.nn.introspection import forward_memory, multiply_adds_of_noise, unwrap
from arrn.nn.network import as_network, channels_of
from arrn.runs import is_finished, pick_device
from arrn.runs.settings import RUN_FILE
from arrn.runtime.files import Array
from arrn.runtime.levels import Grid, Policy, as_policy
from arrn.runtime.predictor import Predictor as AnyPredictor
from arrn.saving import load
from arrn.signal.kernels import kernel
from arrn.signal.resample import resample
from arrn.signal.scaling import Normalisation
from arrn.training.step import order_memory

_AT_ONCE = 2**24  # numbers of the inputs that are normalised and resampled together
_MOST_TOGETHER, _MEMORY = 1024, 2**30  # inputs that the network runs on together, and bytes that they may take
_WARM_UP = 5  # calls after which a CUDA graph is recorded, and one that replays it


class Predictor(AnyPredictor):
    """Classifies inputs of any sizes, mixed, by a trained network. Threads may share one predictor.

    The inputs of one call are grouped by the level at which they enter, resampled to the grid of this level and run
    together, by a copy of the network that is cast to this level and has its norms folded. Inputs are normalised as in
    training.

    Args:
        network: a folder that `arrn.save` wrote; the folder of a finished run; an address on the hub,
            ``"hf://OWNER/NAME"``; or a network with its `metadata`. A network is copied: later changes of the network
            have no effect on the predictor.
        device: "auto" (the first available device of cuda, mps and cpu), "cpu", "cuda" or "mps".
        policy: the level for inputs between two grids: "exact" (the higher one) or "cheap" (the lower one). None is
            the network's own policy.
        compile: compile each level for this machine (`arrn.nn.Frozen`). Batches are padded to 1, 2, 4, 8, ... inputs;
            each of these sizes compiles once per level, which takes up to a minute.
        capture: on a GPU, record each level as a CUDA graph (`arrn.gpu.Replay`). Batches are padded in the same way.
        metadata: normalisation and class names, in place of the network's own.
        max_pixels: refuse images of more pixels, or volumes of more voxels. None is 64 million.
        aspect: how to fit inputs of other proportions than the grids: "stretch", "pad" or "crop". None is the
            choice that the network was trained with.

    Raises:
        ArrnError: for a folder without a finished network, a network without normalisation, or a device that is not
            available.

    >>> import arrn
    >>> model = arrn.create_model("arrn", sizes=(16, 8), features=(8, 16), num_classes=4)
    >>> model.metadata = arrn.metadata.Metadata(mean=(0.5,) * 3, std=(0.25,) * 3, class_names=tuple("abcd"))
    >>> predictor = Predictor(model, device="cpu")
    >>> small, large = predictor([np.zeros((6, 8, 3), np.uint8), np.zeros((40, 30, 3), np.uint8)], top=2)
    >>> small.level, large.level, len(large.top)
    ((8, 8), (16, 16), 2)
    """

    def __init__(
        self,
        network: nn.Module | str | os.PathLike[str],
        *,
        device: str | torch.device = "auto",
        policy: Policy | None = None,
        compile: bool = False,
        capture: bool = False,
        metadata: Metadata | None = None,
        max_pixels: int | None = None,
        aspect: str | None = None,
    ) -> None:
        self.device = device if isinstance(device, torch.device) else pick_device(device)
        if capture and self.device.type != "cuda":
            raise ArrnError(
                f"capture=True records CUDA graphs, but the device is {self.device.type}: leave out capture"
            )
        folder: Path | None = None
        if isinstance(network, nn.Module):
            model = copy.deepcopy(unwrap(network))
        else:
            folder = locate(network)
            model = _open(folder)
        if isinstance(model, Backbone):
            raise ArrnError(
                "a backbone returns feature maps instead of probabilities of classes: take the whole network"
            )
        known = metadata or getattr(model, "metadata", None) or Metadata()
        if known.mean is None or known.std is None:
            raise ArrnError(
                f"{'this network' if folder is None else folder} does not say how inputs are normalised: give "
                "metadata=arrn.metadata.Metadata(mean=..., std=...), with one number for each channel"
            )
        channels = len(known.mean)
        known.check_channels(channels_of(model))
        about = as_network(model)
        super().__init__(
            grids=about.grids,
            ndim=about.ndim,
            channels=channels,
            class_names=known.class_names,
            window=known.window,
            policy=as_policy(policy or about.policy or "exact"),
            cascade=None if folder is None else read_cascade(folder),
            max_pixels=max_pixels,
            aspect=known.aspect if aspect is None else aspect,
        )
        self.compile, self.capture = compile, capture
        self.adapts = about.adapts
        self._model = model.eval().float()
        self._normalise = Normalisation(known.mean, known.std).to(self.device)
        self._kernel = about.kernel or kernel("perfect")
        self._levels: dict[int, _Level] = {}
        self._costs: dict[int, tuple[int, int] | None] = {}
        self._building = threading.Lock()

    def entry_grid(self, size: Grid, level: int) -> Grid:
        if self.adapts or len(self.grids) > 1:
            return self.grids[level]
        return as_network(self._model).entry_grid(size)  # its one grid, or the input's own

    def cost(self, level: int) -> int | None:
        found = self._counted(level)
        return None if found is None else found[0]

    def _counted(self, level: int) -> tuple[int, int] | None:
        """Multiply-adds and bytes of memory, for one input at a level."""
        with self._building:
            if level not in self._costs:
                self._costs[level] = self._count(level)
            return self._costs[level]

    def _count(self, level: int) -> tuple[int, int] | None:
        # A network that takes inputs on their own grid costs what their size makes of it.
        if not self.grids or self.entry_grid((1,) * self.ndim, level) != self.grids[level]:
            return None
        network, shape = self._cast(level), (1, self.channels, *self.grids[level])
        try:
            return multiply_adds_of_noise(network, shape), forward_memory(network, shape)
        except RuntimeError:  # a network of the user's own whose course depends on the data
            return None

    def prepare(self, level: int, count: int) -> None:
        self._counted(level)  # takes longer than an answer of a small network, once
        self._level(level).warm_up(_padded(count) if self.compile or self.capture else 1)

    @torch.no_grad()
    def run(self, level: int, signals: Sequence[Array]) -> Array:
        run = self._level(level)
        found: list[torch.Tensor | None] = [None] * len(signals)
        for grid, places in self._by_grid(level, signals).items():
            ready = torch.cat([self._enter(batch, grid) for batch in _stacks(signals, places)])
            many = self._at_once(level)
            logits = torch.cat([run(ready[first : first + many]) for first in range(0, len(ready), many)])
            if logits.ndim != 2:
                raise ArrnError(
                    f"the network returned shape {tuple(logits.shape)}, and should return (inputs, classes)"
                )
            for place, row in zip(_in_stacks(signals, places), logits.float().softmax(dim=1), strict=True):
                found[place] = row
        probabilities: Array = torch.stack([row for row in found if row is not None]).cpu().numpy()
        return probabilities

    def _at_once(self, level: int) -> int:
        """How many inputs the network may run on together."""
        found = self._counted(level)
        return _MOST_TOGETHER if found is None else max(1, min(_MOST_TOGETHER, _MEMORY // max(1, found[1])))

    def _enter(self, batch: Array, grid: Grid) -> torch.Tensor:
        """Stored samples, normalised and on a grid of the network."""
        return resample(self._normalise(torch.from_numpy(batch).to(self.device)), grid, self._kernel)

    def _by_grid(self, level: int, signals: Sequence[Array]) -> dict[Grid, list[int]]:
        grids: defaultdict[Grid, list[int]] = defaultdict(list)
        for place, signal in enumerate(signals):
            grids[self.entry_grid(tuple(signal.shape[1:]), level)].append(place)
        return grids

    def _level(self, level: int) -> _Level:
        with self._building:
            if level not in self._levels:
                network = order_memory(self._cast(level).to(self.device), self.ndim)
                example = (self.channels, *self.grids[level]) if self.grids else None
                self._levels[level] = _Level(network, example, self.device, self.compile, self.capture)
            return self._levels[level]

    def _cast(self, level: int) -> nn.Module:
        """The network for inputs on the grid of a level, which shares nothing with others that run at once."""
        if isinstance(self._model, ARRN):
            return self._model.at_resolution(self.grids[level]).fuse()
        return copy.deepcopy(self._model)


class _Level:
    """A network on its device, ready to run; compiled or recorded where that was asked for."""

    def __init__(
        self,
        network: nn.Module,
        example: tuple[int, ...] | None,
        device: torch.device,
        compile: bool,
        capture: bool,
    ) -> None:
        self._example = example
        self._device = device
        self._pads = compile or capture
        self._calls = _WARM_UP if capture else 1
        self._warm: set[int] = set()

        def fast(program: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
            run = Frozen(program) if compile else program
            return Replay(torch.no_grad()(run), device) if capture else run

        # On a CPU, layers see for themselves what may be left out.
        self._run = Shortcut.of(network, fast) if self._pads or device.type != "cpu" else network
        # Of networks at large nothing is known, and compilers and recordings are not made for threads.
        stateless = isinstance(network, AdaptedARRN) or type(network) is FixedResolution
        self._turn: AbstractContextManager[Any] = nullcontext() if stateless and not self._pads else threading.Lock()

    def warm_up(self, count: int) -> None:
        """What a first run with so many inputs would set up."""
        if count in self._warm or self._example is None:
            return
        for _ in range(self._calls):
            self(torch.zeros((count, *self._example), device=self._device))
        self._warm.add(count)

    @torch.no_grad()
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        count = len(x)
        if self._pads and (missing := _padded(count) - count):
            x = torch.cat([x, x[:1].expand(missing, *x.shape[1:])])  # zeros would have work done that others leave out
        with self._turn:
            try:
                answer: torch.Tensor = self._run(x)
            except Exception as error:
                if "torch._inductor" not in str(type(error).__module__):
                    raise
                raise ArrnError(f"this network cannot be compiled here: {first_line(error)}") from error
        return answer[:count]


def _padded(count: int) -> int:
    """The next power of two: few sizes of batches compile, and each wastes less than half."""
    return 1 << (count - 1).bit_length()


def _stacks(signals: Sequence[Array], places: Sequence[int]) -> list[Array]:
    """Signals of one size and type together, a bounded number at a time."""
    return [np.stack([signals[place] for place in stack]) for stack in _alike(signals, places)]


def _in_stacks(signals: Sequence[Array], places: Sequence[int]) -> list[int]:
    """The places of the signals in the order of `_stacks`."""
    return [place for stack in _alike(signals, places) for place in stack]


def _alike(signals: Sequence[Array], places: Sequence[int]) -> list[list[int]]:
    alike: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
    for place in places:
        alike[signals[place].shape, signals[place].dtype.name].append(place)
    parts: list[list[int]] = []
    for same in alike.values():
        many = max(1, _AT_ONCE // signals[same[0]].size)
        parts += [same[first : first + many] for first in range(0, len(same), many)]
    return parts


def _open(folder: Path) -> nn.Module:
    if (folder / RUN_FILE).exists() and not is_finished(folder):
        raise ArrnError(f"the run in {folder} is not finished: go on with `arrn train ... --out {folder} --resume`")
    return load(folder)
