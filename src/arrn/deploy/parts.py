"""A network taken apart for export: how signals enter each level, the levels, and what all of them share at the end."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from arrn.errors import ArrnError
from arrn.metadata import Metadata
from arrn.models.fixed import ResampledNetwork
from arrn.models.rivals import SwitchableNetwork
from arrn.nn.arrn import ARRN
from arrn.nn.inference import fold_batch_norms
from arrn.nn.layers import Resampling, fold
from arrn.nn.network import Policy, as_policy, classes_of
from arrn.signal.grid import Grid, format_grid
from arrn.signal.kernels import Kernel
from arrn.signal.scaling import full_scale

Answers: TypeAlias = Literal["probabilities", "features"]


@dataclass(frozen=True)
class Entrance:
    """From stored numbers to what a level takes: each sample's channels are multiplied by a matrix, and shifted.

    Attributes:
        weight: shape (features, channels); the normalisation's scale and the folded projections.
        shift: shape (features,).
    """

    weight: NDArray[np.float32]
    shift: NDArray[np.float32]


@dataclass(frozen=True)
class Parts:
    """A network in evaluation mode, in float32 on the CPU, that shares nothing with the one it was made of.

    Attributes:
        grids: of the levels, highest first; the last is the base's.
        kernel: what resamples inputs to them.
        policy: the network's own.
        entrances: one for each level.
        levels: the modules that take the features of one level to the next.
        tail: from the features of the last level to the answers.
        answers: probabilities of classes, or features if the network returns no classes.
        reference: the network itself, for comparison; takes normalised inputs of any size.
        mean, std: of the inputs, divided by their full scale.
    """

    grids: tuple[Grid, ...]
    kernel: Kernel
    policy: Policy
    entrances: tuple[Entrance, ...]
    levels: tuple[nn.Module, ...]
    tail: nn.Module
    answers: Answers
    reference: nn.Module
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def ndim(self) -> int:
        """Axes of space."""
        return len(self.grids[0])

    @property
    def channels(self) -> int:
        """Of the inputs."""
        return len(self.mean)

    @property
    def full_scale(self) -> float:
        """What stands for 1 in stored numbers: 255 in images and volumes, 32768 in sound."""
        return full_scale(stored_type(self.ndim))

    def normalise(self, stored: torch.Tensor) -> torch.Tensor:
        """Stored numbers, as floats of shape (batch, channels, *space), as the network sees them."""
        shape = (1, -1, *[1] * self.ndim)
        mean, std = (torch.tensor(values, dtype=torch.float64).view(shape) for values in (self.mean, self.std))
        return ((stored.double() / self.full_scale - mean) / std).float()

    @torch.no_grad()
    def answer(self, normalised: torch.Tensor) -> torch.Tensor:
        """What PyTorch answers, from the whole network and not from its parts."""
        answers: torch.Tensor = self.reference(normalised)
        return answers.softmax(dim=1) if self.answers == "probabilities" else answers


def stored_type(ndim: int) -> torch.dtype:
    """The type in which samples are stored: int16 for sound, uint8 for images and volumes."""
    return torch.int16 if ndim == 1 else torch.uint8


class LevelProgram(nn.Module):
    """One level and all below it: stored numbers on the level's grid in, answers out.

    Shape: (batch, channels, *grid), floats -> (batch, classes).
    """

    def __init__(self, parts: Parts, level: int) -> None:
        super().__init__()
        entrance = parts.entrances[level]
        features, channels = entrance.weight.shape
        convolution = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[parts.ndim]
        self.enter = convolution(channels, features, 1)
        with torch.no_grad():
            self.enter.weight.copy_(torch.from_numpy(entrance.weight).view_as(self.enter.weight))
            cast(nn.Parameter, self.enter.bias).copy_(torch.from_numpy(entrance.shift))
        grid = parts.grids[level]
        # A signal on the grid may hold more than the kernel's band: periodic kernels leave out the Nyquist bin.
        kept = all(map(parts.kernel.keeps, grid))
        self.smooth = nn.Identity() if kept else Resampling(grid, grid, parts.kernel)
        self.levels = nn.Sequential(*parts.levels[level:])
        self.tail = parts.tail

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        answers: torch.Tensor = self.tail(self.levels(self.enter(self.smooth(signal))))
        return answers


class _Tail(nn.Module):
    def __init__(self, body: nn.Module, answers: Answers) -> None:
        super().__init__()
        self.body, self.answers = body, answers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.body(x)
        return y.softmax(dim=1) if self.answers == "probabilities" else y


def take_apart(
    model: nn.Module, metadata: Metadata, policy: Policy | None = None, *, keep_shared: bool = False
) -> Parts:
    """The parts of an ARRN, or of a network of one fixed resolution.

    Args:
        model: the network; it stays as it is.
        metadata: of which mean and standard deviation must be known.
        policy: another than the network's own.
        keep_shared: convolutions that several levels share keep their weights, beside norms of each level
            (`fold_batch_norms`); otherwise each level has convolutions of its own.

    Raises:
        ArrnError: for other networks, and where the normalisation is not known.
    """
    if metadata.mean is None or metadata.std is None:
        raise ArrnError("the network does not say how inputs are normalised: save it with Metadata(mean, std)")
    if isinstance(model, SwitchableNetwork) or not isinstance(model, ARRN | ResampledNetwork):
        raise ArrnError(
            f"a {type(model).__name__} cannot be exported: export takes an ARRN, or a network of one fixed resolution"
        )
    reference = copy.deepcopy(model).cpu().float().eval().requires_grad_(False)
    for parameter in reference.parameters():  # not all exporters take weights in another order
        parameter.data = parameter.data.contiguous()
    answers: Answers = "features" if classes_of(model) == 0 else "probabilities"
    mean, std = metadata.mean, metadata.std
    if isinstance(reference, ARRN):
        if policy is not None:
            reference.policy = as_policy(policy)
        adapted = copy.deepcopy(reference.at_resolution(reference.grids[0])).eval()
        whole = fold_batch_norms(adapted, keep_shared=keep_shared)
        return Parts(
            grids=reference.grids,
            kernel=reference.kernel,
            policy=reference.policy,
            entrances=tuple(
                _entrance(reference._weights(level), mean, std, len(reference.grids[0]))
                for level in range(len(reference.grids))
            ),
            levels=tuple(whole.levels),
            tail=_Tail(nn.Sequential(whole.base, whole.head), answers).eval(),
            answers=answers,
            reference=reference,
            mean=mean,
            std=std,
        )
    assert isinstance(reference, ResampledNetwork)
    network = copy.deepcopy(reference.network)
    return Parts(
        grids=reference.grids,
        kernel=reference.kernel,
        policy="exact",
        entrances=(_entrance([torch.eye(len(mean))], mean, std, len(reference.grids[0])),),
        levels=(),
        tail=_Tail(network, answers).eval(),
        answers=answers,
        reference=reference,
        mean=mean,
        std=std,
    )


def _entrance(weights: Sequence[torch.Tensor], mean: Sequence[float], std: Sequence[float], ndim: int) -> Entrance:
    """Normalisation and projections as one: both act on channels, and resampling leaves a shift as it is."""
    folded = fold([weight.detach().double() for weight in weights]).numpy()
    deviations = np.array(std)
    with np.errstate(all="ignore"):  # what overflows shows when the file's answers are compared with PyTorch's
        scaled = folded / (deviations * full_scale(stored_type(ndim)))
        shift = -(folded / deviations) @ np.array(mean)
        return Entrance(scaled.astype(np.float32), shift.astype(np.float32))


def choose_levels(grids: Sequence[Grid], wanted: Sequence[str] | None) -> tuple[int, ...]:
    """The levels of those grids, highest first; None: all.

    >>> choose_levels(((32, 32), (16, 16), (8, 8)), ["8", "32"])
    (0, 2)
    """
    known = {format_grid(grid): n for n, grid in enumerate(grids)}
    if wanted is None:
        return tuple(known.values())
    for name in wanted:
        if name not in known:
            raise ArrnError(f"the network has no level {name!r:.40}: its levels are {', '.join(known)}")
    return tuple(sorted({known[name] for name in wanted}))
