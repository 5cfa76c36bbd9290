"""One training step: augmentation, forward, loss, backward, optimiser, all on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn

from arrn.data.augmentation import Augmentation
from arrn.data.batches import Batch
from arrn.data.form import word_for
from arrn.data.seeding import derive_seed
from arrn.errors import ArrnError
from arrn.gpu import Replay
from arrn.nn.dropout import LaplacianDropout
from arrn.signal.grid import format_grid
from arrn.training.optimisation import learning_rate, make_optimizer, set_learning_rate
from arrn.training.recipe import Recipe
from arrn.training.resolutions import share_out

__all__ = ["TrainingStep", "autocast_for", "order_memory"]


def autocast_for(recipe: Recipe, device: torch.device) -> Callable[[], AbstractContextManager[object]]:
    """What the forward pass runs in: bfloat16 autocast, or nothing."""
    if recipe.precision == "auto":
        wanted = device.type == "cuda" and torch.cuda.is_bf16_supported()
    else:
        wanted = recipe.precision == "bfloat16"
    if not wanted:
        return nullcontext
    if device.type == "mps":
        raise ArrnError("precision = 'bfloat16' is for cpu and cuda; on mps use 'float32'")
    return lambda: torch.autocast(device.type, torch.bfloat16)


def order_memory(model: nn.Module, ndim: int) -> nn.Module:
    """Puts weights in the memory order that convolutions over `ndim` axes are fastest in."""
    order = {2: torch.channels_last, 3: torch.channels_last_3d}.get(ndim, torch.contiguous_format)
    for parameter in model.parameters():
        if parameter.ndim == ndim + 2:
            parameter.data = parameter.data.contiguous(memory_format=order)
    return model


def draws_on_device(model: nn.Module) -> bool:
    """Whether each step does the same work: a draw made by the host decides anew what runs."""
    return all(
        module.draw != "batch" and not module.unbiased
        for module in model.modules()
        if isinstance(module, LaplacianDropout)
    )


@contextmanager
def _enough_for_batch_norm(x: torch.Tensor) -> Iterator[None]:
    """Around a forward pass: one value per channel has no variance, which torch says without saying where."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        word = word_for(x.ndim - 2)
        raise ArrnError(
            f"a batch of {len(x)} {word}{'s' * (len(x) > 1)} at {format_grid(tuple(x.shape[2:]))} is too few for this "
            f"network's batch norms: a larger batch_size, fewer resolutions or more {word}s of that size would do"
        ) from None


class TrainingStep:
    """Takes a network from one step to the next, and keeps count without waiting for the device.

    Everything random in a step (augmentation, dropout) is drawn from a seed made of the run's seed and
    the step's number, so a run goes on from a checkpoint exactly as it would have without one.

    Args:
        model: the network, on its device.
        augmentation: from what is stored to what the network sees.
        recipe: optimiser, schedule, precision, resolutions.
        steps: of the whole run, for the schedule.
        seed: of the run.
        compiled: whether to run the network through `torch.compile`.
        captured: whether to record the whole step as a CUDA graph (`Replay`); only on a GPU.
    """

    def __init__(
        self,
        model: nn.Module,
        augmentation: Augmentation,
        recipe: Recipe,
        steps: int,
        seed: int,
        compiled: bool = False,
        captured: bool = False,
    ) -> None:
        device = next(model.parameters()).device
        captured = captured and device.type == "cuda"
        self.model = model
        self.optimizer = make_optimizer(recipe, model.parameters(), device if captured else None)
        self._augmentation = augmentation.to(device)
        self._recipe = recipe
        self._steps = steps
        self._seed = seed
        self._autocast = autocast_for(recipe, device)
        self._network: Callable[[torch.Tensor], torch.Tensor] = (
            torch.compile(model, dynamic=False) if compiled else model
        )
        self._loss = torch.zeros((), device=device)
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self._seen = 0
        self._take: Callable[[torch.Tensor, torch.Tensor], None] = (
            Replay(self._compute, device) if captured and draws_on_device(model) else self._compute
        )

    def __call__(self, batch: Batch, number: int) -> None:
        """Takes step `number` of the run, counted from 0."""
        torch.manual_seed(derive_seed(self._seed, "step", number))
        set_learning_rate(self.optimizer, learning_rate(self._recipe, number, self._steps))
        self._take(batch.images, batch.labels)
        self._seen += len(batch.labels)

    def _compute(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """What happens on the device; nothing here waits for it."""
        count = len(labels)
        images = self._augmentation(images)
        parts = [(images, labels)]
        if self._recipe.resolutions:
            parts = share_out(self.model, images, labels, self._recipe.resolutions)
        self.optimizer.zero_grad(set_to_none=True)
        for x, answers in parts:
            with self._autocast(), _enough_for_batch_norm(x):
                logits = self._network(x)
            # In float32, and as a share of the whole batch, so that several parts make one step.
            loss = nn.functional.cross_entropy(logits.float(), answers, reduction="sum")
            torch.autograd.backward(loss / count)
            self._loss += loss.detach()
            self._correct += (logits.argmax(dim=1) == answers).sum()
        self.optimizer.step()

    @property
    def totals(self) -> tuple[float, int, int]:
        """Summed loss, correct answers and samples since the last `reset`; waits for the device."""
        return float(self._loss), int(self._correct), self._seen

    def reset(self, loss: float = 0.0, correct: int = 0, seen: int = 0) -> None:
        """Starts counting again, or goes on counting from where a checkpoint was."""
        self._loss.fill_(loss)
        self._correct.fill_(correct)
        self._seen = seen
