"""Depthwise 3x3 convolution with replicate padding: PyTorch's path against the fast operator, where there is one."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator

import torch
from torch import nn

from arrn.benchmarks.floors import Ceilings, Work, count_inference, dtype_name
from arrn.benchmarks.measurement import Attempt, Fact, Measurement, measure
from arrn.benchmarks.settings import BenchmarkSettings
from arrn.benchmarks.ways import input_shape, kernel_ways, over_all, random_signal
from arrn.nn.layers import ReplicateConv2d
from arrn.signal.grid import format_grid

_DESIGN_NOTES = (256, 32, 32)  # the shape whose floors the design notes give


def benchmark_depthwise(settings: BenchmarkSettings, ceilings: Ceilings) -> list[Measurement]:
    """Forward, and forward with backward, at the model's own shapes; kernels alone, without launching them."""
    found = []
    usual = [] if settings.quick else [_DESIGN_NOTES]
    shapes = list(dict.fromkeys([*usual, *depthwise_shapes(settings.build())]))
    for batch in settings.batches_or(cuda=(128,), others=(16,)):
        for shape in shapes:
            for backward in (False, True):
                found += _measure_shape((batch, *shape), backward, settings, ceilings)
    return found


def depthwise_shapes(model: nn.Module) -> list[tuple[int, ...]]:
    """Channels and grid of each replicate-padded depthwise 3x3 convolution of a network, each once.

    >>> from arrn.models import create_model
    >>> depthwise_shapes(create_model("arrn", sizes=(16, 8), features=(8, 16), expansion=2))
    [(16, 16, 16), (32, 8, 8)]
    """
    found: list[tuple[int, ...]] = []
    for layer, shape in _inputs_of_convolutions(model):
        if layer.groups == layer.in_channels == layer.out_channels and layer.kernel_size == (3, 3):
            found.append(shape)
    return list(dict.fromkeys(found))


def _inputs_of_convolutions(model: nn.Module) -> Iterator[tuple[ReplicateConv2d, tuple[int, ...]]]:
    with torch.device("meta"):
        bare = copy.deepcopy(model).to("meta").eval()
        seen: list[tuple[ReplicateConv2d, tuple[int, ...]]] = []

        def note(layer: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
            assert isinstance(layer, ReplicateConv2d)
            seen.append((layer, tuple(args[0].shape[1:])))

        for layer in bare.modules():
            if isinstance(layer, ReplicateConv2d):
                layer.register_forward_pre_hook(note)
        with torch.no_grad():
            bare(torch.empty(input_shape(bare, 1)))
    yield from seen


def _measure_shape(
    shape: tuple[int, ...], backward: bool, settings: BenchmarkSettings, ceilings: Ceilings
) -> list[Measurement]:
    device, dtype = settings.device, settings.dtype
    batch, channels, *grid = shape
    layer = ReplicateConv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
    forward = count_inference(layer, shape, dtype)
    # Backward to the input reads and writes as much as forward, and so does backward to the weights.
    passes = 3 if backward else 1
    work = Work(passes * forward.multiply_adds, passes * forward.traffic)
    inputs = settings.inputs_beyond_the_cache(math.prod(shape) * dtype.itemsize)

    def prepare() -> Callable[[], object]:
        layer.to(device=device, dtype=dtype)
        pairs = [
            (random_signal(shape, device, dtype).requires_grad_(backward), random_signal(shape, device, dtype))
            for _ in range(inputs)
        ]

        def run(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
            x, gradient = pair
            with torch.set_grad_enabled(backward):
                y = layer(x)
            if backward:
                torch.autograd.grad(y, (x, layer.weight), gradient)

        return over_all(run, pairs, device)

    attempts = [Attempt(way, prepare, work, kernels, parts=inputs) for way, kernels in kernel_ways(device)]
    direction = "forward and backward" if backward else "forward"
    case = f"{channels} channels at {format_grid(tuple(grid))}, batch {batch}, {direction}"
    facts: dict[str, Fact] = {"batch": batch, "channels": channels, "resolution": grid[0], "backward": backward}
    return measure("depthwise", case, attempts, settings, ceilings, {**facts, "dtype": dtype_name(dtype)})
