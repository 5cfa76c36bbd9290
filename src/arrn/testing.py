"""Laws for tests of your own networks and blocks: exact skipping, and weights that make it visible."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from arrn.errors import ArrnError
from arrn.nn.arrn import ARRN
from arrn.nn.backbone import Backbone
from arrn.nn.blocks import BatchRMSNorm
from arrn.nn.dropout import LaplacianDropout
from arrn.nn.network import Policy
from arrn.nn.residual import LaplacianResidual
from arrn.signal.grid import Grid, Size, as_grid, covers, format_grid, grid_of
from arrn.signal.kernels import Kernel
from arrn.signal.resample import resample

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, BatchRMSNorm)
_NORMS = (*_BATCH_NORMS, nn.GroupNorm, nn.LayerNorm)


def assert_exact_skipping(
    module: ARRN | Backbone | LaplacianResidual,
    sizes: Sequence[Size] | None = None,
    *,
    policy: Policy | None = None,
    tolerance: float = 1e-8,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> None:
    """Checks that a network, or a single level, skips exactly what it should, and that this makes a difference.

    For a network, at every size: the answer and each feature map with skipping equal those of all levels, from the
    network and from `at_resolution`; the blocks of skipped levels do not run; and each of these blocks changes the
    answer to an input with all details. For a level: the block has no effect on a signal without details, and has an
    effect on a signal with details.

    A deep copy is checked, in evaluation mode, with its norms drawn at random (`awaken_norms`): a block at its
    default initialisation hardly matters, so a mistake in the block would not show.

    Args:
        module: the network or the level; it does not change.
        sizes: the sizes of the inputs; by default every grid of the ladder, one size between each two grids, and one
            below the base.
        policy: as in `ARRN.forward`. Under ``"cheap"`` inputs between two grids lose the details that the lower grid
            cannot hold; the answers to the remaining signal are compared.
        tolerance: the largest allowed difference, relative to the answer.
        dtype: the dtype in which the copy computes; below float64, rounding needs a larger tolerance.
        seed: the seed of norms and inputs.

    Raises:
        AssertionError: with the level and the error.

    >>> block = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 3, padding=1, padding_mode="replicate"))
    >>> assert_exact_skipping(LaplacianResidual(block, 4, 8, size=8, next_size=4))
    >>> block[1].padding_mode = "zeros"
    >>> assert_exact_skipping(LaplacianResidual(block, 4, 8, 8, 4, check=False))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    AssertionError: level 8 -> 4: a signal of size 4 has no details to skip, but skipping changes it by ... than 1e-08
    """
    if isinstance(module, Backbone):
        module = module.network
    if not isinstance(module, ARRN | LaplacianResidual):
        got = type(module).__name__
        raise ArrnError(f"exact skipping is a law of an ARRN, a Backbone or a LaplacianResidual, got a {got}")
    place = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
    if place.type == "mps":  # which has no float64
        place = torch.device("cpu")
    module = copy.deepcopy(module).to(place, dtype)
    generator = torch.Generator().manual_seed(seed)

    def signals(count: int, channels: int, grid: Grid) -> torch.Tensor:
        return torch.randn(count, channels, *grid, dtype=dtype, generator=generator).to(place)

    if isinstance(module, ARRN):
        channels, ladder, top = module.in_channels, module.grids, module.grids[0]
    else:
        channels, ladder, top = module.in_features, (module.next_size,), module.size
    detailed = signals(4, channels, top)
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
        torch.manual_seed(seed)
        awaken_norms(module, detailed, seed)
    grids = _sizes_around(ladder) if sizes is None else [as_grid(size, len(top)) for size in sizes]
    inputs = [signals(2, channels, grid) for grid in grids]
    if isinstance(module, ARRN):
        _check_network(module, detailed, inputs, policy, tolerance)
    else:
        _check_level(module, detailed, inputs, tolerance)


def _sizes_around(grids: Sequence[Grid]) -> list[Grid]:
    """Each grid, one between it and the next, and one below the last."""
    lower = [*grids[1:], (1,) * len(grids[0])]
    between = [tuple((n + m) // 2 for n, m in zip(*pair, strict=True)) for pair in zip(grids, lower, strict=True)]
    return list(dict.fromkeys(grid for pair in zip(grids, between, strict=True) for grid in pair))


@torch.no_grad()
def _check_network(
    model: ARRN, detailed: torch.Tensor, inputs: Sequence[torch.Tensor], policy: Policy | None, tolerance: float
) -> None:
    skipped = 0
    for x in inputs:
        size = grid_of(x)
        level = model.level(size, policy)
        grid, skipped = model.grids[level], max(skipped, level)
        case = f"level {level} (grid {format_grid(grid)}), input of size {format_grid(size)}"
        held = x if covers(grid, size) else resample(x, grid, model.kernel)
        full = model(held, adapt=False)
        with _running_blocks(model.levels) as ran:
            adapted = model(x, policy=policy)
        if ran != list(range(level, len(model.levels))):
            raise AssertionError(f"{case}: the blocks of levels {ran} ran, expected only the levels from {level} on")
        _assert_close(adapted, full, f"{case}: with and without skipping the answers differ", model.kernel, tolerance)
        maps = zip(model.forward_levels(x, policy=policy), model.forward_levels(held, adapt=False), strict=True)
        for n, (adapted, full_map) in enumerate(maps):
            said = f"{case}: with and without skipping the feature maps {n} differ"
            _assert_close(adapted, full_map, said, model.kernel, tolerance)
        cast = model.at_resolution(size, policy)(x)
        _assert_close(cast, full, f"{case}: at_resolution and the whole network differ", model.kernel, tolerance)
    answer = model(detailed, adapt=False)
    for n in range(skipped):
        r = model.stem(detailed)
        for k, residual in enumerate(model.levels):
            r = residual.skip(r) if k == n else residual(r)
        _assert_matters(model.head(model.base(r)), answer, f"level {n} (grid {format_grid(model.grids[n])})", tolerance)


@torch.no_grad()
def _check_level(
    residual: LaplacianResidual, detailed: torch.Tensor, inputs: Sequence[torch.Tensor], tolerance: float
) -> None:
    name = f"level {format_grid(residual.size)} -> {format_grid(residual.next_size)}"
    for x in inputs:
        size = format_grid(grid_of(x))
        if not covers(residual.next_size, grid_of(x)):
            raise ArrnError(
                f"{name}: a signal of size {size} has details that this level must not skip: give smaller sizes"
            )
        smooth = resample(x, residual.size, residual.kernel)
        with _running_blocks([residual]) as ran:
            skipped = residual.skip(smooth)
        if ran:
            raise AssertionError(f"{name}: the block ran though the level was skipped")
        said = f"{name}: a signal of size {size} has no details to skip, but skipping changes it"
        _assert_close(skipped, residual(smooth), said, residual.kernel, tolerance)
    _assert_matters(residual.skip(detailed), residual(detailed), name, tolerance)


@contextmanager
def _running_blocks(residuals: Sequence[LaplacianResidual]) -> Iterator[list[int]]:
    """Collects the numbers of the residuals whose blocks run inside."""
    ran: list[int] = []
    handles = [
        residual.block.register_forward_hook(lambda *_, n=n: ran.append(n)) for n, residual in enumerate(residuals)
    ]
    try:
        yield ran
    finally:
        for handle in handles:
            handle.remove()


def _difference(answer: torch.Tensor, expected: torch.Tensor) -> float:
    return float((answer - expected).norm() / expected.norm())


def _assert_close(answer: torch.Tensor, expected: torch.Tensor, said: str, kernel: Kernel, tolerance: float) -> None:
    error = _difference(answer, expected)
    if not error <= tolerance:
        cause = "" if kernel.exact else f"; {kernel} is not exact, and exact skipping needs an exact kernel"
        raise AssertionError(f"{said} by {error:.2g}, more than {tolerance:g}{cause}")


def _assert_matters(without: torch.Tensor, answer: torch.Tensor, name: str, tolerance: float) -> None:
    effect = _difference(without, answer)
    if not effect > 100 * tolerance:
        raise AssertionError(
            f"{name}: the block changes the answer to a signal with all details by {effect:.2g} only, too little for "
            "this check: give other values to weights that are zero"
        )


def awaken_norms(model: nn.Module, x: torch.Tensor, seed: int = 0, steps: int = 10) -> nn.Module:
    """Draws the norms' parameters and lets batch norms see data; returns the model in evaluation mode.

    At default initialisation the residual blocks hardly matter, so a law that holds for a fresh
    network says little. Weights become U(0.5, 1.5), biases N(0, 0.5), and running statistics those of
    `x`, after `steps` forward passes in training mode (the layers settle one after another). Layer scales,
    parameters that hold one value only, become U(0.5, 1.5) too.
    """
    generator = torch.Generator().manual_seed(seed)
    norms = [module for module in model.modules() if isinstance(module, _NORMS)]
    momenta = {norm: norm.momentum for norm in norms if isinstance(norm, _BATCH_NORMS)}
    with torch.no_grad():
        for batch_norm in momenta:
            batch_norm.momentum = 1.0
        for norm in norms:
            if norm.weight is None:  # affine=False
                continue
            norm.weight.copy_(torch.empty(norm.weight.shape).uniform_(0.5, 1.5, generator=generator))
            if isinstance(norm, BatchRMSNorm) or norm.bias is None:
                continue
            norm.bias.copy_(torch.empty(norm.bias.shape).normal_(0, 0.5, generator=generator))
        of_norms = {parameter for norm in norms for parameter in norm.parameters()}
        for parameter in model.parameters():
            value = parameter.flatten()[0] if parameter.numel() > 1 else 0
            if parameter not in of_norms and value != 0 and bool((parameter == value).all()):
                parameter.copy_(torch.empty(parameter.shape).uniform_(0.5, 1.5, generator=generator))
        model.train()
        for module in model.modules():
            if isinstance(module, LaplacianDropout):  # every level is to see all of x
                module.eval()
        for _ in range(steps):
            model(x)
    for batch_norm, momentum in momenta.items():
        batch_norm.momentum = momentum
    return model.eval()


@torch.no_grad()
def adaptation_discrepancy(model: ARRN, x: torch.Tensor, policy: Policy | None = None) -> float:
    """The relative difference between adapted and full evaluation of `x`: |adapted - full| / |full|.

    Rounding for perfect kernels under the policy ``"exact"``; the kernel's own error otherwise.

    Args:
        model: a network in evaluation mode.
        x: shape (batch, in_channels, *space).
        policy: overrides the network's own.
    """
    full = model(x, adapt=False)
    return float((model(x, policy=policy) - full).norm() / full.norm())
