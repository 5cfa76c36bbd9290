"""What a network costs at each resolution, with and without adaptation, and what adaptation changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from arrn.gpu import Replay
from arrn.nn import ARRN, EveryLevel, Shortcut, count_parameters, multiply_adds_of_noise
from arrn.nn.network import as_network, entry_grid
from arrn.provenance import provenance
from arrn.runs.device import true_float32
from arrn.signal.resample import resample
from arrn.testing import adaptation_discrepancy
from arrn.timing import Timing, time_call


def count_parameter_range(model: nn.Module) -> dict[str, int]:
    """How many parameters the lowest resolution needs, and how many there are."""
    total = count_parameters(model)
    base = count_parameters(model.at_resolution(model.grids[-1])) if isinstance(model, ARRN) else total
    return {"base": base, "total": total}


def list_multiply_adds(model: nn.Module, resolutions: Sequence[int]) -> list[dict[str, Any]]:
    """The multiply-adds of one image at each resolution, resampling to the network's grid included.

    The image has details in every band that it can have, as natural images do.
    """
    return [
        {"resolution": size, "adapt": adapt, "multiply_adds": multiply_adds_of_noise(run, _shape(model, 1, size))}
        for size in resolutions
        for adapt, run in _ways_to_run(model, size)
    ]


@torch.no_grad()
def measure_discrepancies(model: nn.Module, images: torch.Tensor, resolutions: Sequence[int]) -> list[dict[str, Any]]:
    """How far the logits of an ARRN are apart with and without adaptation; nothing for other networks.

    Args:
        model: in evaluation mode.
        images: normalised, on the model's device, shape (batch, channels, *space).
        resolutions: to which they are lowered by the perfect kernel.
    """
    if not isinstance(model, ARRN):
        return []
    with true_float32():
        return [
            {"resolution": size, "discrepancy": adaptation_discrepancy(model, resample(images, size))}
            for size in resolutions
        ]


@torch.no_grad()
def measure_inference(
    model: nn.Module, resolutions: Sequence[int], samples: int, batch_size: int, repeats: int
) -> list[dict[str, Any]]:
    """Seconds for `samples` images at each resolution: the median of several times, and its quartiles.

    Neither reading nor lowering images is part of it, as in the paper; taking them to the network's grid is. Time
    does not depend on what is in the images, nor on the weights, so the images are noise. On a GPU each batch is
    replayed from a CUDA graph: launching kernels one by one would take longer than running them.

    Args:
        model: on its device; set to evaluation mode.
        resolutions: to measure at.
        samples: as many as a whole test set has.
        batch_size: images at once; the last batch holds what is left.
        repeats: how often each is measured.
    """
    device = next(model.parameters()).device
    where = provenance()  # the weights may have been trained elsewhere
    on_gpu = device.type == "cuda"
    hardware = where["gpu"] if on_gpu else where["processor"]
    model.eval()
    found = []
    with true_float32():
        for size in resolutions:
            images = torch.randn(_shape(model, min(batch_size, samples), size), device=device)
            if images.ndim == 4:
                images = images.contiguous(memory_format=torch.channels_last)
            times: dict[nn.Module, Timing] = {}
            for adapt, run in _ways_to_run(model, size):
                if run not in times:
                    call = Shortcut.of(run, lambda program: Replay(program, device, warmup=1)) if on_gpu else run
                    # One pass warms up; another records the last batch too, of which a pass has only one.
                    passes = partial(_run_over, call, images, samples)
                    times[run] = time_call(passes, repeats, warmup=1 + on_gpu, device=device)
                time = times[run]
                seconds = {"seconds": time.median, "lower": time.lower, "upper": time.upper}
                how = {"batch_size": batch_size, "precision": "float32", "device": hardware}
                found.append({"resolution": size, "adapt": adapt, **seconds, "samples": samples, **how})
    return found


def _shape(model: nn.Module, batch: int, size: int) -> tuple[int, ...]:
    """Of a batch of signals that the network takes, with as many samples along each axis."""
    channels = getattr(model, "in_channels", 3)
    return (batch, int(channels), *[size] * as_network(model).ndim)


def _run_over(run: Callable[[torch.Tensor], torch.Tensor], images: torch.Tensor, samples: int) -> None:
    for first in range(0, samples, len(images)):
        run(images[: min(len(images), samples - first)])


def _ways_to_run(model: nn.Module, size: int) -> list[tuple[bool | None, nn.Module]]:
    """An ARRN with and without adaptation, any other network as it is; `adapt` and what to call."""
    if not isinstance(model, ARRN):
        return [(None, model)]
    adapted = model.at_resolution(size).eval()
    # Where no level is skipped, both ways are the same module.
    full = adapted if entry_grid(model, (size,) * model.ndim) == model.grids[0] else EveryLevel(model)
    return [(True, adapted), (False, full)]
