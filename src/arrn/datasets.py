"""What is known of data sets by their names, in one table that data, recipes, experiments and commands read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class DatasetFacts:
    """A data set; the defaults are what to start from on any other one.

    Attributes:
        access: where its files come from. "shipped" with this library; "download", fetched where missing; "unpack":
            the user unpacks the published archive; "root": known only to the experiments, opened with a root.
        statistics: the published mean and standard deviation of each channel, of images in [0, 1]; None where they
            are measured.
        design: the ARRN that was designed for it.
        size: of its samples, along each axis, which is the top of the design's ladder.
        recipe: its name among `arrn.training.RECIPES`.
        resolutions: where the experiments evaluate it, highest first; none is what suits the size.
        reproduced: whether `arrn reproduce` has experiments on it.
        seconds: that a sample lasts, for sound; axes of resolution are then in Hz.
    """

    access: Literal["shipped", "download", "unpack", "root"] = "root"
    statistics: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    design: str = "arrn_small"
    size: int = 32
    recipe: str = "paper_cifar"
    resolutions: tuple[int, ...] = ()
    reproduced: bool = True
    seconds: float | None = None


_CIFAR10_STATISTICS = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
_CIFAR100_STATISTICS = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)

DATASETS = {
    "sample": DatasetFacts(access="shipped", statistics=_CIFAR10_STATISTICS),
    "cifar10": DatasetFacts(access="download", statistics=_CIFAR10_STATISTICS, design="arrn_cifar10"),
    "cifar100": DatasetFacts(access="download", statistics=_CIFAR100_STATISTICS, design="arrn_cifar100"),
    "tinyimagenet": DatasetFacts(access="download", design="arrn_tinyimagenet", size=64, recipe="paper_larger_images"),
    "stl10": DatasetFacts(access="download", design="arrn_stl10", size=96, recipe="paper_larger_images"),
    "imagenette": DatasetFacts(access="unpack", reproduced=False),
    # Of STL10's size and number of classes, for where STL10 is not at hand; not one of the paper's.
    "imagenette96": DatasetFacts(design="arrn_stl10", size=96, recipe="paper_larger_images"),
    # Larger images than any of the paper's: ten classes of ImageNet as networks for ImageNet take them.
    "imagenette224": DatasetFacts(design="arrn_imagenette224", size=224, recipe="paper_larger_images"),
    # Beyond the paper: sound, a second of it at 8, 4 and 2 kHz, and volumes, in the sizes that MedMNIST publishes.
    "fsdd": DatasetFacts(
        design="arrn_audio_small", size=8000, recipe="few_sounds", resolutions=(8000, 4000, 2000), seconds=1.0
    ),
    "adrenalmnist3d": DatasetFacts(design="arrn_volume_small", size=64, recipe="few_volumes", resolutions=(64, 28)),
}

REPRODUCED = tuple(name for name, facts in DATASETS.items() if facts.reproduced)
"""The data sets that `arrn reproduce` has experiments on."""


def facts_of(dataset: str) -> DatasetFacts:
    """The facts of a data set; of an unknown one, what is small and quick to start from.

    >>> facts_of("cifar10").design, facts_of("/home/me/pictures").design
    ('arrn_cifar10', 'arrn_small')
    """
    return DATASETS.get(dataset, DatasetFacts())
