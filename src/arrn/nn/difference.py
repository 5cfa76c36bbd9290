"""The difference form of a level: b(r) - b(U D r), both answers from one call of the block, with the same masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

Form: TypeAlias = Literal["paper", "difference"]
FORMS = ("paper", "difference")

# Dropout of values, and of whole channels: an input and a probability in, the input times a mask out.
_DROPOUTS: dict[Callable[..., Any], bool] = {
    F.dropout: False,
    F.dropout1d: True,
    F.dropout2d: True,
    F.dropout3d: True,
}
# What masks are otherwise made of, as torchvision's and timm's stochastic depth are.
_DRAWS = {
    torch.Tensor.bernoulli_,
    torch.Tensor.uniform_,
    torch.Tensor.normal_,
    torch.bernoulli,
    torch.rand,
    torch.rand_like,
    torch.randn,
    torch.randn_like,
}


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
        answer = func(*args, **kwargs)
        if func in _DRAWS and self._holds_batch(answer):
            half = answer.shape[0] // 2
            answer[half:] = answer[:half]
        return answer

    def _holds_batch(self, x: torch.Tensor) -> bool:
        # Windows or tokens of a sample may stand beside the samples in the first axis, each sample's together.
        # Dropped weights have one mask for all samples already.
        return x.ndim > 0 and x.shape[0] > 0 and x.shape[0] % self.batch == 0 and not isinstance(x, nn.Parameter)

    def _drop(
        self,
        dropout: Callable[..., torch.Tensor],
        input: torch.Tensor,  # noqa: A002  # as torch calls it
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
        both = input.unflatten(0, (2, half))
        return (both.mul_(mask) if inplace else both * mask).flatten(0, 1)


def answer_both(block: nn.Module, halves: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
    """The block's answers to both halves of a batch, in one call: its norms see both, its masks are shared.

    Args:
        block: called as ``block(halves)`` or ``block(halves, context)``.
        halves: shape (2 batch, channels, *space).
        context: shape (batch, channels, *space), the same for both halves; None for blocks that take none.
    """
    arguments = (halves,) if context is None else (halves, torch.cat([context, context]))
    if not block.training:
        answer: torch.Tensor = block(*arguments)
        return answer
    with SharedMasks(halves.shape[0]):
        answer = block(*arguments)
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
