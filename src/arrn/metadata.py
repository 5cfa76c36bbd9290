"""`Metadata`: how a network's inputs are prepared and what its outputs mean, kept beside its weights."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from arrn.errors import ArrnError
from arrn.runtime.aspect import as_aspect
from arrn.signal.grid import check_tensor
from arrn.signal.kernels import kernel
from arrn.signal.scaling import Normalisation, check_statistics

LONGEST_WINDOW = 1e9
"""The seconds that an input spans, at most; how many samples they are is bounded where clips are read."""

_FAR_ABOVE = 2.0
"""Full scale is 1. Bicubic resampling overshoots to 1.45 at most (torch's, over two axes)."""


@dataclass(frozen=True)
class Metadata:
    """How a network's inputs are prepared, and what its outputs mean.

    Attributes:
        mean: the mean of each channel of the inputs, for normalising; None where it is not known.
        std: the standard deviation of each channel; None where it is not known.
        resampler: how inputs were brought to lower resolutions, a name or `kernel_options`.
        class_names: a name for each output.
        window: seconds of sound that an input spans; None for inputs other than sound.
        aspect: how images and volumes of other proportions than the network's grids were fitted: "stretch", "pad"
            or "crop".
    """

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    resampler: str | Mapping[str, Any] | None = None
    class_names: tuple[str, ...] | None = None
    window: float | None = None
    aspect: str = "stretch"

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in ("mean", "std") if getattr(self, name) is not None}
        for name, values in given.items():
            if not isinstance(values, list | tuple):
                raise ArrnError(
                    f"{name} of the metadata is {values!r:.80}: it should be a tuple, one number per channel"
                )
            object.__setattr__(self, name, tuple(values))
        if given:  # one of the two may be not known, and is then as good as any
            check_statistics(
                given.get("mean", (0.0,) * len(self.std or ())), given.get("std", (1.0,) * len(self.mean or ()))
            )
        window = self.window
        if window is not None and not (isinstance(window, int | float) and 0 < window <= LONGEST_WINDOW):
            raise ArrnError(f"window must be a number of seconds above 0, up to {LONGEST_WINDOW:g}, got {window!r:.40}")
        as_aspect(self.aspect)

    def normalise(self, x: torch.Tensor) -> torch.Tensor:
        """`x`, normalised as in training: with mean 0 and standard deviation 1 in each channel.

        Args:
            x: shape (batch, channels, *space); as stored (uint8 images, int16 sound), or floats with 1 for full scale.

        Raises:
            ArrnError: where mean and standard deviation are not known, or are those of another number of channels;
                for samples of another dtype, and for floats far beyond full scale, such as those of 0 to 255.

        >>> Metadata(mean=(0.5,), std=(0.25,)).normalise(torch.tensor([[[0.5, 1.0]]]))
        tensor([[[0., 2.]]])
        """
        if self.mean is None or self.std is None:
            raise ArrnError(
                "this network is untrained, or was saved without the mean and standard deviation of its inputs: "
                "set model.metadata = arrn.metadata.Metadata(mean=..., std=...), one number per channel each"
            )
        check_tensor(x)
        if x.ndim < 3 or x.shape[1] != len(self.mean):
            raise ArrnError(f"expected shape (batch, {len(self.mean)}, *space), got {tuple(x.shape)}")
        self._check_scale(x)
        answer: torch.Tensor = Normalisation(self.mean, self.std).to(x.device)(x)
        return answer

    def _check_scale(self, x: torch.Tensor) -> None:
        """Refuses floats that were not divided by full scale, or that are normalised already.

        Only where the statistics are those of samples between -1 and 1: a network of the user's own may have others.
        """
        assert self.mean is not None
        assert self.std is not None
        usual = max(map(abs, self.mean)) <= 1 and max(self.std) <= 0.5
        if not (usual and x.is_floating_point() and x.numel()) or torch.compiler.is_compiling():
            return
        largest = float(x.detach().abs().amax())
        if largest > _FAR_ABOVE:
            raise ArrnError(
                f"floats should have 1 for full scale, but the largest is {largest:.4g}: give samples as they are "
                "stored (uint8 images, int16 sound), or divide floats of 0 to 255 by 255; samples that are normalised "
                "already must not be normalised again"
            )

    def for_classes(self, count: int) -> Metadata:
        """The same metadata for a network of `count` classes, without the class names if their number differs.

        >>> Metadata(class_names=("cat", "dog")).for_classes(3).class_names is None
        True
        """
        if self.class_names is None or len(self.class_names) == count:
            return self
        return dataclasses.replace(self, class_names=None)

    def check_channels(self, count: int | None) -> None:
        """Refuses the normalisation of another number of channels than `count` (None: not known)."""
        for name, values in (("mean", self.mean), ("std", self.std)):
            if count is not None and values is not None and len(values) != count:
                raise ArrnError(f"{name} should have {count} numbers, one for each channel, got {values!r:.80}")

    def check_classes(self, count: int | None) -> None:
        """Refuses the names of another number of classes than `count` (None: not known).

        Names are refused rather than dropped: answers with wrong names, or without names, would hide the mistake.
        """
        if count is not None and self.class_names is not None and len(self.class_names) != count:
            raise ArrnError(
                f"{len(self.class_names)} class names for a network of {count} classes: "
                "name each class, or let class_names be null (None)"
            )


def read_metadata(inputs: Mapping[str, Any]) -> Metadata:
    """The metadata that a file holds; fields that the file leaves out are not known.

    Raises:
        ArrnError: for a value that makes no sense.
    """

    def numbers(name: str) -> tuple[float, ...] | None:
        values = inputs.get(name)
        if values is None:
            return None
        if not isinstance(values, list) or not all(isinstance(v, int | float) and math.isfinite(v) for v in values):
            raise ArrnError(f"{name} must be a list of numbers, got {values!r:.80}")
        return tuple(map(float, values))

    names = inputs.get("class_names")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise ArrnError(f"class_names must be a list of names, got {names!r:.80}")
    resampler = inputs.get("resampler")
    if isinstance(resampler, Mapping):
        kernel(resampler)
    elif not isinstance(resampler, str | None):
        raise ArrnError(f"resampler must be a name or a kernel's options, got {resampler!r:.80}")
    class_names = None if names is None else tuple(names)
    return Metadata(
        numbers("mean"), numbers("std"), resampler, class_names, inputs.get("window"), inputs.get("aspect", "stretch")
    )
