"""The named designs: each is data, built by the one generic builder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from arrn.models.generic import DesignOptions, build_arrn
from arrn.models.registry import takes
from arrn.nn.arrn import ARRN
from arrn.nn.difference import Form
from arrn.nn.network import Policy


@dataclass(frozen=True, kw_only=True)
class Design:
    """An ARRN as numbers: one column per size of its ladder, highest first, base last.

    Attributes:
        purpose: what it is for, in words.
        sizes: the ladder.
        features: channels at each size.
        expansion: hidden channels per feature at each size.
        depth: depthwise convolutions per block at each size.
        num_classes: the classes of the data set it was designed for.
        dropout: Laplacian dropout's p, the probability of dropping each block.
        policy: the entry level of inputs between two sizes, as in the paper's evaluation of the data set.
        ndim: axes of space: 1 (sound), 2 (images), 3 (volumes).
        in_channels: channels of the inputs it was designed for.
        repeats: blocks at each size, or one number for all.
        blockless: sizes without a block that Laplacian dropout also drops to.
        block_dropout: the share of hidden channels that every block loses in training.
        block, base_block, form, hand_down, bracket_norm: as in `DesignOptions`.
    """

    purpose: str
    sizes: tuple[int, ...]
    features: tuple[int, ...]
    expansion: tuple[float, ...]
    depth: tuple[int, ...]
    num_classes: int
    dropout: float
    policy: Policy = "exact"
    ndim: int = 2
    in_channels: int = 3
    repeats: tuple[int, ...] = (1,)
    blockless: tuple[int, ...] = ()
    block_dropout: float = 0.0
    block: str = "inverted"
    base_block: str | None = None
    form: Form = "paper"
    hand_down: str = "kernel"
    bracket_norm: bool = False


# The paper gives the parameters at the base and in all, not the ladders: those are ours. For CIFAR-10, ladders
# of three to five sizes were compared on a validation split (docs/performance.md): three were best; blocks,
# dropout and levels without a block are as a second search found them (docs/notes/search_arrn_cifar10.md). Hidden
# channels are multiples of 16, without which a GPU's matrix units and wide loads go unused.
DESIGNS = {
    "arrn_small": Design(
        purpose="quick work on a CPU with 32x32 images",
        sizes=(32, 16, 8),
        features=(16, 32, 64),
        expansion=(2, 3, 4),
        depth=(1, 1, 2),
        num_classes=10,
        dropout=0.4,
    ),
    "arrn_cifar10": Design(
        purpose="CIFAR-10; 5.33M parameters at the base, 8.09M in all, as in the paper",
        sizes=(32, 16, 8),
        features=(64, 128, 256),
        expansion=(4, 8, 3.5625),
        depth=(2, 2, 2),
        repeats=(1, 2, 4),
        num_classes=10,
        dropout=0.65,
        blockless=(24, 12, 6, 4),
        block_dropout=0.15,
    ),
    # Blocks, dropout of channels and levels without a block as the search for arrn_cifar10 found them; the p of these
    # four designs is where their own searches start (docs/experiments.md).
    "arrn_cifar100": Design(
        purpose="CIFAR-100; 9.59M parameters at the base, 14.4M in all, as in the paper",
        sizes=(32, 16, 8),
        features=(64, 160, 320),
        expansion=(4, 8.5, 3.9),
        depth=(2, 2, 2),
        repeats=(1, 2, 4),
        num_classes=100,
        dropout=0.5,
        blockless=(24, 12, 6, 4),
        block_dropout=0.15,
    ),
    "arrn_tinyimagenet": Design(
        purpose="TinyImageNet; 15.1M parameters at the base, 19.7M in all, as in the paper",
        sizes=(64, 32, 16, 8),
        features=(64, 128, 256, 384),
        expansion=(4, 4, 4.25, 4.125),
        depth=(2, 2, 2, 2),
        repeats=(1, 2, 2, 4),
        num_classes=200,
        dropout=0.4,
        blockless=(48, 24, 12),
        block_dropout=0.15,
    ),
    "arrn_stl10": Design(
        purpose="STL10; 13.8M parameters at the base, 18.4M in all, as in the paper",
        sizes=(96, 48, 24, 12),
        features=(32, 96, 256, 384),
        expansion=(4, 4, 4.6875, 3.9167),
        depth=(1, 2, 2, 2),
        repeats=(1, 1, 2, 4),
        num_classes=10,
        dropout=0.5,
        blockless=(64, 32, 16),
        block_dropout=0.15,
    ),
    # Not the paper's. At 224x224 hidden channels are what takes memory in training, so the top is narrow. In all it
    # does 1.1 times the multiply-adds of ResNet18, and 0.7 times at 28x28.
    "arrn_imagenette224": Design(
        purpose="Imagenette at 224x224",
        sizes=(224, 112, 56, 28, 14),
        features=(16, 32, 64, 128, 256),
        expansion=(2, 3, 4, 4, 3),
        depth=(1, 1, 1, 2, 2),
        repeats=(1, 1, 1, 2, 3),
        num_classes=10,
        dropout=0.5,
        blockless=(160, 80, 40),
        block_dropout=0.15,
    ),
    # Not the paper's. Each step of the ladder halves the rate, so that 8, 4 and 2 kHz are levels; long lines are what
    # costs, so the top is narrow; the base's samples are 20 ms apart, as far as frames of a spectrogram (with 8 ms,
    # accuracies over 6 epochs on spoken digits differed by no more than chance, one run each).
    "arrn_audio_small": Design(
        purpose="quick work on a CPU with windows of 8000 samples, such as a second of speech at 8 kHz",
        sizes=(8000, 4000, 2000, 1000, 500, 250, 125, 50),
        features=(4, 8, 16, 24, 32, 48, 64, 64),
        expansion=(4, 4, 3, 3, 3, 3, 3, 4),
        depth=(1, 1, 1, 1, 1, 1, 2, 4),
        num_classes=10,
        dropout=0.4,
        ndim=1,
        in_channels=1,
    ),
    # 64 and 28 are the sizes in which MedMNIST publishes volumes, and levels here. At 64 nearly everything is depthwise
    # convolution, which CPUs are slow at in three axes: few channels there.
    "arrn_volume_small": Design(
        purpose="quick work on a CPU with volumes of 64x64x64, such as MedMNIST's",
        sizes=(64, 28, 14, 7),
        features=(4, 8, 24, 48),
        expansion=(1, 2, 3, 4),
        depth=(1, 1, 1, 2),
        num_classes=2,
        dropout=0.4,
        ndim=3,
        in_channels=1,
    ),
}


def design_builder(design: Design) -> Callable[..., ARRN]:
    """A builder for the registry: the design's ladder, and its other numbers as defaults."""

    @takes(
        DesignOptions(
            num_classes=design.num_classes,
            in_channels=design.in_channels,
            dropout=design.dropout,
            policy=design.policy,
            blockless=design.blockless,
            block_dropout=design.block_dropout,
            block=design.block,
            base_block=design.base_block,
            form=design.form,
            hand_down=design.hand_down,
            bracket_norm=design.bracket_norm,
        )
    )
    def build(options: DesignOptions) -> ARRN:
        return build_arrn(
            **vars(options),
            sizes=design.sizes,
            features=design.features,
            expansion=design.expansion,
            depth=design.depth,
            repeats=design.repeats if len(design.repeats) > 1 else design.repeats[0],
            ndim=design.ndim,
        )

    build.__doc__ = f"An ARRN for {design.purpose}: {' -> '.join(map(str, design.sizes))}."
    return build
