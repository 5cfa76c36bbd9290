"""Resampling: matrices against transforms, where transforms begin to win, and what a residual does of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch

from arrn.benchmarks.floors import Ceilings, Work, count_inference, dtype_name
from arrn.benchmarks.measurement import Attempt, Fact, Measurement, measure
from arrn.benchmarks.settings import BenchmarkSettings
from arrn.benchmarks.ways import kernel_ways, over_all, random_signal, to_inference, without_gradients
from arrn.nn.arrn import ARRN
from arrn.nn.layers import Resampling
from arrn.nn.residual import LaplacianResidual
from arrn.signal import WhittakerShannon, resample_spectral
from arrn.signal.grid import format_grid
from arrn.signal.kernels import Boundary
from arrn.signal.resample import resample_by_matrices
from arrn.timing import rotating

_BOUNDARIES: tuple[Boundary, ...] = ("symmetric", "periodic")
_SAMPLES = 2**21  # about as many in each size of the crossover's


def benchmark_resampling(settings: BenchmarkSettings, ceilings: Ceilings) -> list[Measurement]:
    """Halving in both forms, lines and images of growing size for the crossover, and D, U and I - U D of a model."""
    found = []
    for boundary in _BOUNDARIES:
        for shape in _shapes(settings.quick):
            found += _against_transform(shape, boundary, settings, ceilings)
    model = settings.build()
    if isinstance(model, ARRN):
        for batch in settings.batches_or(cuda=(128,), others=(16,)):
            for residual in model.eval().levels:
                found += _in_residual(residual, batch, settings, ceilings)
    return found


def _shapes(quick: bool) -> list[tuple[int, ...]]:
    if quick:
        return [(2, 4, 16, 16), (2, 1, 64)]
    networks = [(32, 64, n, n) for n in (32, 96)]
    lines = [(max(1, _SAMPLES // n), 1, n) for n in (128, 256, 512, 1024, 2048, 4096, 8192)]
    images = [(max(1, _SAMPLES // n**2), 3, n, n) for n in (128, 256, 512, 1024, 2048)]
    return [*networks, *lines, *images]


def _against_transform(
    shape: tuple[int, ...], boundary: Boundary, settings: BenchmarkSettings, ceilings: Ceilings
) -> list[Measurement]:
    """Halves signals of `shape`, in float32: the transform's precision. The reference is the transform."""
    kernel = WhittakerShannon(boundary)
    source = shape[2:]
    target = tuple(n // 2 for n in source)
    work = count_inference(Resampling(source, target, kernel), shape, torch.float32)
    inputs = settings.inputs_beyond_the_cache(math.prod(shape) * 4)
    forms = {"transform": resample_spectral, "matrices": resample_by_matrices}

    def prepare(form: Callable[..., torch.Tensor]) -> Callable[[], object]:
        signals = [torch.randn(shape, device=settings.device) for _ in range(inputs)]
        return rotating(lambda x: form(x, target, kernel), signals)

    attempts = [Attempt(name, partial(prepare, form), work) for name, form in forms.items()]
    case = f"{format_grid(source)} -> {format_grid(target)}, {boundary}, {shape[0]} of {shape[1]} channels"
    facts: dict[str, Fact] = {"boundary": boundary, "axes": len(source), "resolution": source[0]}
    facts["dtype"] = dtype_name(torch.float32)
    return measure("resampling", case, attempts, settings, ceilings, facts, dtype=torch.float32)


def _in_residual(
    residual: LaplacianResidual, batch: int, settings: BenchmarkSettings, ceilings: Ceilings
) -> list[Measurement]:
    """What a residual does to its signal, channels last: kernels alone, without launching them."""
    device, dtype = settings.device, settings.dtype
    fine = (batch, residual.in_features, *residual.size)
    coarse = (batch, residual.in_features, *residual.next_size)
    down, up = (count_inference(part, s, dtype) for part, s in ((residual.down, fine), (residual.up, coarse)))
    # As one operation: its input is read once, its output written once.
    both = Work(down.multiply_adds + up.multiply_adds, 2 * math.prod(fine) * dtype.itemsize)
    to_inference(residual, len(residual.size), device, dtype)
    operations: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...], Work]] = {
        "D": (residual.down, fine, down),
        "U": (residual.up, coarse, up),
        "I - U D": (partial(_lose_the_low_band, residual), fine, both),
    }
    found = []
    grids = f"{format_grid(residual.size)} and {format_grid(residual.next_size)}"
    for name, (operation, shape, work) in operations.items():
        inputs = settings.inputs_beyond_the_cache(math.prod(shape) * dtype.itemsize)

        def prepare(
            operation: Callable[[torch.Tensor], torch.Tensor] = operation,
            shape: tuple[int, ...] = shape,
            inputs: int = inputs,
        ) -> Callable[[], object]:
            signals = [random_signal(shape, device, dtype) for _ in range(inputs)]
            return over_all(without_gradients(operation), signals, device)

        attempts = [Attempt(way, prepare, work, kernels, parts=inputs) for way, kernels in kernel_ways(device)]
        case = f"{name} between {grids}, {residual.in_features} channels, batch {batch}"
        facts: dict[str, Fact] = {"batch": batch, "operation": name, "resolution": residual.size[0]}
        found += measure("resampling", case, attempts, settings, ceilings, {**facts, "dtype": dtype_name(dtype)})
    return found


def _lose_the_low_band(residual: LaplacianResidual, r: torch.Tensor) -> torch.Tensor:
    """(I - U D) r as a residual computes it."""
    return residual.up.taken_from(r, residual.down(r))
