"""The data sets of the experiments: the design that suits each, its size, its recipe, where it is evaluated."""

from __future__ import annotations

from dataclasses import dataclass

from arrn.errors import unknown_name
from arrn.evaluation import default_resolutions
from arrn.training.recipe import PAPER_CIFAR, PAPER_LARGER_IMAGES, RECIPES, Recipe


@dataclass(frozen=True)
class ExperimentSet:
    """A data set of the experiments.

    Attributes:
        design: the ARRN that was designed for it.
        size: of its samples, along each axis.
        recipe: the paper's, or what suits a set that the paper does not have.
        resolutions: where it is evaluated, highest first; none is what suits the size.
    """

    design: str
    size: int
    recipe: Recipe
    resolutions: tuple[int, ...] = ()


def _small_set(batch_size: int, flip: bool) -> Recipe:
    """For small networks on a few thousand samples: shorter, in smaller and larger steps."""
    return PAPER_CIFAR.with_options({"epochs": 60, "batch_size": batch_size, "learning_rate": 3e-3, "flip": flip})


SETS = {
    "sample": ExperimentSet("arrn_small", 32, RECIPES["sample"]),
    "cifar10": ExperimentSet("arrn_cifar10", 32, RECIPES["cifar10"]),
    "cifar100": ExperimentSet("arrn_cifar100", 32, RECIPES["cifar100"]),
    "tinyimagenet": ExperimentSet("arrn_tinyimagenet", 64, RECIPES["tinyimagenet"]),
    "stl10": ExperimentSet("arrn_stl10", 96, RECIPES["stl10"]),
    # Of STL10's size and number of classes, for where STL10 is not at hand; not one of the paper's.
    "imagenette96": ExperimentSet("arrn_stl10", 96, PAPER_LARGER_IMAGES),
    # Beyond the paper: sound, a second of it at 8, 4 and 2 kHz, and volumes, in the sizes that MedMNIST publishes.
    "fsdd": ExperimentSet("arrn_audio_small", 8000, _small_set(batch_size=64, flip=False), (8000, 4000, 2000)),
    "adrenalmnist3d": ExperimentSet("arrn_volume_small", 64, _small_set(batch_size=32, flip=True), (64, 28)),
}

_BY_SIZE = {96: (96, 80, 64, 48, 32, 24, 16, 12)}


def experiment_set(name: str) -> ExperimentSet:
    """The data set of that name.

    Raises:
        ArrnError: for a name that the experiments do not know.
    """
    if name not in SETS:
        raise unknown_name("data set of the experiments", name, SETS)
    return SETS[name]


def usual_set(name: str) -> ExperimentSet:
    """What to start from on any data set: the paper's on its own, what is small and quick on others.

    >>> usual_set("cifar10").design, usual_set("/home/me/pictures").design
    ('arrn_cifar10', 'arrn_small')
    """
    return SETS.get(name, ExperimentSet("arrn_small", 32, PAPER_CIFAR))


def resolutions_for(size: int, dataset: str = "") -> tuple[int, ...]:
    """Where networks for samples of `size` are evaluated, highest first; some data sets have their own.

    >>> resolutions_for(32)
    (32, 28, 24, 20, 16, 12, 8, 6, 4)
    """
    if dataset in SETS and SETS[dataset].resolutions:
        return SETS[dataset].resolutions
    return _BY_SIZE.get(size, default_resolutions(None, size))
