"""`Replay`: a function of tensors that is recorded as a CUDA graph, so that the host no longer issues its kernels."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

import torch

logger = logging.getLogger(__name__)

Result = TypeVar("Result", bound=torch.Tensor | None)
_Key = tuple[tuple[torch.Size, torch.dtype], ...]


@dataclass
class _Recording(Generic[Result]):
    """A graph, and the memory that it reads its inputs from and writes its output to."""

    graph: torch.cuda.CUDAGraph
    inputs: list[torch.Tensor]
    output: Result

    def play(self, inputs: tuple[torch.Tensor, ...]) -> Result:
        for fixed, given in zip(self.inputs, inputs, strict=True):
            fixed.copy_(given, non_blocking=True)
        self.graph.replay()
        # A copy: the next replay writes to the same memory.
        return cast(Result, None if self.output is None else self.output.clone())


class Replay(Generic[Result]):
    """Calls a function as it is at first, and from then on replays what it did on the GPU.

    The first calls with inputs of some shapes are ordinary ones, which also warm up what must not be set up while
    recording (libraries' workspaces, the optimiser's state, the choice of algorithms). The next one is recorded and
    replayed; so are all later ones with the same shapes, for as many different shapes as `limit`. Random numbers are
    those that an ordinary call would draw: torch passes its generator's seed to the graph at each replay.

    The function must do the same work whenever the shapes are the same and must not wait for the GPU. It returns a
    tensor, of which a copy is returned, or changes tensors that live on and returns None. The tensors that it reads
    beside its inputs, weights for one, must stay where they are: values may change, `module.half()` must not come
    between. What cannot be recorded is called as it is, and a warning says so once.

    For inference, with a network of one resolution whose norms are folded::

        fast = Replay(torch.no_grad()(network.at_resolution(16).fuse()), torch.device("cuda"))
        logits = fast(x)

    Args:
        function: of CUDA tensors; called on a stream of its own.
        device: a CUDA device.
        warmup: ordinary calls before the recording.
        limit: recordings at most; other shapes are called as usual.
    """

    def __init__(self, function: Callable[..., Result], device: torch.device, warmup: int = 3, limit: int = 16) -> None:
        self._function = function
        self._warmup = warmup
        self._limit = limit
        # Recording needs a stream that is not the default one, and gradients are accumulated on the stream of the
        # first backward pass: so ordinary calls use it too.
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._last = self._stream
        self._calls: Counter[_Key] = Counter()
        self._recordings: dict[_Key, _Recording[Result]] = {}
        self._refused = False

    @property
    def recordings(self) -> int:
        """How many shapes have been recorded."""
        return len(self._recordings)

    def forget(self) -> None:
        """Drops every recording, for a function that does other work from now on; later calls record it anew."""
        self._stream.wait_stream(self._last)
        self._stream.synchronize()  # what is dropped must not be at work
        self._recordings.clear()
        self._calls.clear()

    def __call__(self, *inputs: torch.Tensor) -> Result:
        key = tuple((x.shape, x.dtype) for x in inputs)
        here = torch.cuda.current_stream(self._stream.device)
        recording = self._recordings.get(key)
        if recording is None:
            output = self._call_aside(key, inputs, here)
        else:
            # A graph may be replayed on any stream: changing streams would take the host longer than the replay.
            if here != self._last:
                here.wait_stream(self._last)
            output = recording.play(inputs)
        self._last = here
        return output

    def _call_aside(self, key: _Key, inputs: tuple[torch.Tensor, ...], here: torch.cuda.Stream) -> Result:
        """An ordinary call, or the one that is recorded, on the stream of its own."""
        self._stream.wait_stream(here)
        self._stream.wait_stream(self._last)
        # What precedes a recording runs as it does, or a compiled function would be compiled anew within it.
        with torch.cuda.stream(self._stream), _without_kept_casts():
            recording = self._record(key, inputs) if self._is_due(key) else None
            output = self._function(*inputs) if recording is None else recording.play(inputs)
        here.wait_stream(self._stream)
        if isinstance(output, torch.Tensor):
            output.record_stream(here)  # it was made on the other stream, whose allocator would reuse it too soon
        return output

    def _is_due(self, key: _Key) -> bool:
        self._calls[key] += 1
        return self._calls[key] > self._warmup and len(self._recordings) < self._limit and not self._refused

    def _record(self, key: _Key, inputs: tuple[torch.Tensor, ...]) -> _Recording[Result] | None:
        graph = torch.cuda.CUDAGraph()
        fixed = [x.clone(memory_format=torch.preserve_format) for x in inputs]
        # One pool for all: recordings are replayed one after another, never at once.
        pool = next((r.graph.pool() for r in self._recordings.values()), None)
        generator = torch.cuda.default_generators[self._stream.device_index]
        as_it_was = generator.clone_state()
        try:
            with torch.cuda.graph(graph, pool=pool, stream=self._stream, capture_error_mode="thread_local"):
                output = self._function(*fixed)
        except RuntimeError as error:
            self._refused = True
            # A recording that broke off leaves the generator believing that it is still being recorded.
            generator.graphsafe_set_state(as_it_was)
            logger.warning("this cannot be recorded as a CUDA graph and runs kernel by kernel: %s", _first(error))
            return None
        self._recordings[key] = _Recording(graph, fixed, output)
        return self._recordings[key]


@contextmanager
def _without_kept_casts() -> Iterator[None]:
    """Where the caller's autocast casts weights anew: a graph would go on reading casts that end with it."""
    kept = torch.is_autocast_cache_enabled()
    if not (kept and torch.is_autocast_enabled("cuda")):
        yield
        return
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(kept)
        torch.clear_autocast_cache()


def _first(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
