"""An image on its way through a network: each level's features in the colours of their principal components."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure

from arrn.errors import ArrnError
from arrn.figures.pyramid import show_image, spell_size
from arrn.figures.style import Drawing, styled
from arrn.figures.subject import Subject
from arrn.nn import ARRN
from arrn.signal import LaplacianPyramid
from arrn.signal.grid import grid_of
from arrn.signal.kernels import KernelLike


def features_figure(subject: Subject) -> Drawing:
    """The image on its way through the network."""
    network = subject.network
    with torch.no_grad():
        levels = signals_on_the_way(network, subject.normalisation(255 * subject.image))
    title = f"Features of an image in {subject.title}"
    return Drawing("features", draw_features(subject.image, levels, network.kernel, title))


def signals_on_the_way(network: ARRN, x: torch.Tensor) -> list[torch.Tensor]:
    """What each level that runs receives of an input, what the base receives, and what the base gives."""
    signals: list[torch.Tensor] = []

    def record(_: object, inputs: tuple[torch.Tensor, ...]) -> None:
        signals.append(inputs[0])

    hooks = [part.register_forward_pre_hook(record) for part in (*network.levels, network.base)]
    try:
        last = network.forward_features(x)
    finally:
        for hook in hooks:
            hook.remove()
    return [*signals, last]


def draw_features(image: torch.Tensor, levels: Sequence[torch.Tensor], kernel: KernelLike, title: str) -> Figure:
    """Draws what each level receives (top), and the difference that its block is given (bottom).

    Args:
        image: shape (1, 3, height, width), values in [0, 1].
        levels: what `signals_on_the_way` gives for it, of one image.
        kernel: the network's.
        title: tells which network it is.
    """
    names = [f"into level {n + 1}" for n in range(len(levels) - 2)] + ["into the base", "out of the base"]
    grids = [grid_of(features) for features in levels]
    with styled():
        figure = Figure(figsize=(2.5 * (1 + len(levels)), 5.8), layout="constrained")
        axes = figure.subplots(2, 1 + len(levels), squeeze=False)
        for each in axes.flat:
            each.axis("off")
        show_image(axes[0, 0], image, f"input:\n{spell_size(image)}", image)
        axes[1, 0].text(
            0.5, 0.5, "colours: the three\nprincipal components\nof each level's features", ha="center", va="center"
        )
        for n, (name, features) in enumerate(zip(names, levels, strict=True), start=1):
            colours = principal_colours(features)
            caption = f"{name}:\n{spell_size(features)}, {features.shape[1]} features"
            show_image(axes[0, n], colours(features), caption, image)
            if n <= len(levels) - 2:
                (difference,), _ = LaplacianPyramid(grids[n - 1 : n + 1], kernel).decompose(features)
                caption = f"difference {n}, for\nthe block of level {n}"
                show_image(axes[1, n], colours(difference, centred=False), caption, image)
        figure.suptitle(title, fontsize=11)
        return figure


def principal_colours(features: torch.Tensor) -> PrincipalColours:
    """Finds the three directions of most variance over space; each points where its largest weight is positive.

    >>> ramp = torch.linspace(-1, 1, 16).reshape(1, 1, 4, 4)
    >>> colours = principal_colours(torch.cat([ramp, -2 * ramp], dim=1))
    >>> colours.directions[0]  # the sign is fixed by the second channel, which weighs more
    tensor([-0.4472,  0.8944], dtype=torch.float64)
    """
    if features.ndim != 4 or features.shape[0] != 1:
        raise ArrnError(f"expected one image's features, (1, features, height, width), got {tuple(features.shape)}")
    flat = features[0].flatten(1).double().cpu()
    mean = flat.mean(dim=1, keepdim=True)
    axes, variances, _ = torch.linalg.svd(flat - mean, full_matrices=False)
    # Directions without variance are noise of the decomposition: they stay grey.
    count = int((variances[:3] > 1e-10 * max(float(variances[0]), 1e-30)).sum())
    directions = torch.zeros(3, flat.shape[0], dtype=flat.dtype)
    for n in range(count):
        axis = axes[:, n]
        directions[n] = axis * axis[axis.abs().argmax()].sign()
    reach = (directions @ (flat - mean)).abs().amax(dim=1, keepdim=True)
    return PrincipalColours(mean, directions, torch.where(reach > 0, reach, 1.0))


@dataclass(frozen=True)
class PrincipalColours:
    """The colours of one level's features.

    Attributes:
        mean: of the features over space, shape (features, 1).
        directions: the principal directions, shape (3, features); zero where there are fewer than three.
        reach: the largest magnitude along each direction, shape (3, 1); it becomes full colour.
    """

    mean: torch.Tensor
    directions: torch.Tensor
    reach: torch.Tensor

    def __call__(self, features: torch.Tensor, centred: bool = True) -> torch.Tensor:
        """Colours in [0, 1] around grey, shape (1, 3, height, width).

        Args:
            features: shape (1, features, height, width).
            centred: take the mean off first; a difference of features has none to take.
        """
        flat = features[0].flatten(1).double()
        along = self.directions @ (flat - self.mean if centred else flat)
        colours = (0.5 + 0.5 * along / self.reach).clamp(0, 1)
        return colours.reshape(1, 3, *features.shape[2:])
