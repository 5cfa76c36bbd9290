"""The difference form of a level: b(r) - b(U D r), both answers from one call of the block, with the same masks.

It asks of a block that it takes every sample by itself, and that it leaves nothing to chance that its two calls do not
share: `check_sample_wise`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from arrn.errors import ArrnError
from arrn.nn.constancy import (
    TOLERANCE,
    as_size,
    block_grid,
    in_words,
    output_shape,
    probe_of,
    run_probe,
    takes_context,
    zero_sample,
)
from arrn.signal.grid import Grid, Size, grid_of

Form: TypeAlias = Literal["paper", "difference", "gated"]
FORMS = ("paper", "difference", "gated")

# Dropout of values, and of whole channels: an input and a probability in, the input times a mask out.
_DROPOUTS: dict[Callable[..., Any], bool] = {
    F.dropout: False,
    F.dropout1d: True,
    F.dropout2d: True,
    F.dropout3d: True,
}
# What masks are otherwise made of, as torchvision's and timm's stochastic depth are: filled or made.
_FILLING = {torch.Tensor.bernoulli_, torch.Tensor.uniform_, torch.Tensor.normal_}
_MAKING = {torch.bernoulli, torch.rand, torch.rand_like, torch.randn, torch.randn_like}


class SharedMasks(TorchFunctionMode):
    """Inside, what a block draws at random is the same for both halves of its batch.

    Dropout of values and of channels, as layers or as functions, and stochastic depth. Masks drawn apart would bury
    the difference of the two answers in noise. What draws its numbers elsewhere, as `nn.RReLU` does, is left as it
    is; `check_sample_wise` refuses it. No layer is changed, so compilers and CUDA graphs follow.

    Args:
        batch: the samples of both halves together.

    >>> with SharedMasks(4):
    ...     first, second = F.dropout(torch.ones(4, 8), 0.5).chunk(2)
    >>> torch.equal(first, second)
    True
    """

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch = batch

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _DROPOUTS:
            return self._drop(func, *args, **kwargs)
        if func in _FILLING and self._holds_batch(args[0]):
            half = args[0].shape[0] // 2
            func(args[0][:half], *args[1:], **kwargs)
            args[0][half:] = args[0][:half]
            return args[0]
        answer = func(*args, **kwargs)
        if func in _MAKING and self._holds_batch(answer):
            half = answer.shape[0] // 2
            answer[half:] = answer[:half]
        return answer

    def _holds_batch(self, x: torch.Tensor) -> bool:
        # Windows or tokens of a sample may stand beside the samples in the first axis, each sample's together.
        # Dropped weights have one mask for all samples already.
        whole = x.ndim > 0 and 0 < self.batch <= x.shape[0] and x.shape[0] % self.batch == 0
        return whole and not isinstance(x, nn.Parameter)

    def _drop(
        self,
        dropout: Callable[..., torch.Tensor],
        input: torch.Tensor,
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> torch.Tensor:
        if not (training and p and self._holds_batch(input)):
            return dropout(input, p, training, inplace)
        half = input.shape[0] // 2
        shape = [half, *input.shape[1:]]
        if _DROPOUTS[dropout] and len(shape) > 2:
            shape[2:] = [1] * (len(shape) - 2)
        mask = dropout(input.new_ones(shape), p, True)
        both = input.view(2, half, *input.shape[1:])
        return (both.mul_(mask) if inplace else both * mask).flatten(0, 1)


def answer_both(block: nn.Module, halves: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
    """The block's answers to both halves of a batch, in one call: its norms see both, its masks are shared.

    Args:
        block: called as ``block(halves)`` or ``block(halves, context)``.
        halves: shape (2 batch, channels, *space).
        context: shape (batch, channels, *space), the same for both halves; None for blocks that take none.
    """
    arguments = (halves,) if context is None else (halves, torch.cat([context, context]))
    with SharedMasks(halves.shape[0]) if block.training else nullcontext():
        answer: torch.Tensor = block(*arguments)
    return answer


def subtract_halves(
    answers: torch.Tensor, gate: torch.Tensor | None = None, norm: nn.Module | None = None
) -> torch.Tensor:
    """The first half of the batch less the second, in at least float32, gated and normalised; dtype of `answers`.

    The two are nearly alike at first: what is left of them has no digits to spare.
    """
    wide = answers.float() if answers.dtype in (torch.float16, torch.bfloat16) else answers
    half = answers.shape[0] // 2
    bracket = wide[:half] - wide[half:]
    if gate is not None:
        bracket = bracket * gate
    if norm is not None:
        bracket = norm(bracket)
    return bracket.to(answers.dtype)


def check_sample_wise(block: nn.Module, features: int, size: Size) -> tuple[int, Grid]:
    """Refuses a block that the difference form cannot skip exactly, naming the submodule at fault.

    The block is called with a batch whose two halves are the same signal. Both halves must get the same answer, in
    evaluation mode and, with shared random masks (`SharedMasks`), in training mode. In evaluation mode a sample's
    answer must also be the same at each call, whatever the other samples are. A deep copy is probed. Arguments and
    return value are those of `check_zero_constant`.

    Raises:
        ArrnError: with the name of the submodule and the size of the deviation.

    >>> check_sample_wise(nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), nn.LayerNorm([6, 8, 8])), 4, 8)
    (6, (8, 8))
    >>> check_sample_wise(nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), nn.RReLU()), 4, 8)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    arrn.errors.ArrnError: submodule '1' (RReLU) draws random numbers that the two calls of the difference form ...
    """
    grid = block_grid(block, size)
    if any(parameter.is_meta for parameter in block.parameters()):
        return output_shape(block, features, grid)
    probe, x, context = probe_of(block, features, grid, 0, training=False)
    others = torch.cat([x, x.flip(0) + 1])
    first = _calls_of(probe, torch.cat([x, x]), context)
    _refuse_apart(first, _calls_of(probe, torch.cat([x, x]), context, seed=1), _CHANCE)
    _refuse_apart(first, _calls_of(probe, others, context), _COMPANY)
    _refuse_apart(first, [call.turned() for call in first], _PLACE)
    trained = _calls_of(probe.train(), torch.cat([x, x]), context)
    _refuse_apart(trained, [call.turned() for call in trained], _UNSHARED)
    answer = trained[-1].outputs[0]
    return answer.shape[1], grid_of(answer)


class _Call(NamedTuple):
    """What a submodule was given and what it answered: copies, since layers may work in place."""

    name: str
    module: nn.Module
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]

    def turned(self) -> _Call:
        """The same call with the halves of the batch exchanged."""
        turned = [[x.roll(len(x) // 2, 0) for x in tensors] for tensors in (self.inputs, self.outputs)]
        return _Call(self.name, self.module, *turned)


def _calls_of(probe: nn.Module, x: torch.Tensor, context: torch.Tensor, seed: int = 0) -> list[_Call]:
    """Runs the block and returns the calls of its submodules in the order in which they return, its own last."""
    calls: list[_Call] = []

    def record(name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        calls.append(_Call(name, module, _batches_in([args, kwargs]), _batches_in(output)))

    handles = [
        module.register_forward_hook(partial(record, name), with_kwargs=True) for name, module in probe.named_modules()
    ]
    try:
        run_probe(lambda: answer_both(probe, x, context if takes_context(probe) else None), x, seed)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _batches_in(value: Any) -> list[torch.Tensor]:
    """Copies of the tensors in nested arguments whose first axis can be split in halves."""
    if isinstance(value, torch.Tensor):
        whole = value.is_floating_point() and value.ndim > 0 and value.numel() > 0 and len(value) % 2 == 0
        return [value.detach().clone()] if whole else []
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for item in items for tensor in _batches_in(item)]


def _refuse_apart(calls: Sequence[_Call], others: Sequence[_Call], flaw: str) -> None:
    """Refuses a block whose two runs differ in the first half of their batches; names who began."""
    deviation = _apart(calls[-1].outputs, others[-1].outputs)
    if deviation <= TOLERANCE:
        return
    culprit, size = calls[-1], deviation
    for call, other in zip(calls, others, strict=False):
        if _apart(call.inputs, other.inputs) <= TOLERANCE < (stray := _apart(call.outputs, other.outputs)):
            culprit, size = call, stray
            break
    where = in_words(culprit.name, culprit.module)
    if math.isinf(deviation):
        flaw = "returns NaN or infinity: add a small number to what it divides by"
    raise ArrnError(f"{where} {flaw.format(size=f'{size:.2g}')}, or pass check=False to build it all the same")


def _apart(tensors: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> float:
    """The largest difference in the first half of the batches, relative to the largest value."""
    worst = 0.0
    for x, other in zip(tensors, others, strict=False):
        if x.shape == other.shape:
            x, other = zero_sample(x), zero_sample(other)
            worst = max(worst, as_size((x - other).abs().max() / x.abs().max().clamp_min(1e-30)))
    return worst


# What is wrong with a block for the difference form: each follows the name of the submodule.
_CHANCE = (
    "leaves its answer to chance in evaluation mode (two runs differ by {size} of its largest value), so the residual "
    "could not be skipped exactly: let it draw in training mode only"
)
_COMPANY = (
    "lets a sample's answer depend on the other samples in evaluation mode (by {size} of its largest value): give "
    "batch norms track_running_stats=True"
)
_PLACE = (
    "answers a sample differently in another place of the batch (by {size} of its largest value), so the two calls of "
    "the difference form would not cancel"
)
_UNSHARED = (
    "draws random numbers that the two calls of the difference form cannot share in training mode (they differ by "
    "{size} of its largest value): use nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d or stochastic depth"
)
