"""A recipe: how a network is trained, as data. The loop does not know which data set it trains on."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from arrn.datasets import facts_of
from arrn.errors import ArrnError, unknown_name
from arrn.models import DESIGNS
from arrn.nn.network import Policy
from arrn.reading import read_toml


@dataclass(frozen=True)
class _Rule:
    """What values an option may have, in words and as a check of one value; `count` is that of a list."""

    words: str
    holds: Callable[[Any], bool]
    count: int | None = 1


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _part(value: Any) -> bool:
    return _number(value) and 0 <= value <= 1


def _whole(most: int) -> _Rule:
    return _Rule(
        f"a whole number from 1 to {most}",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most,
    )


def _one_of(*choices: str) -> _Rule:
    return _Rule(" or ".join(map(repr, choices)), lambda value: isinstance(value, str) and value in choices)


_LONGEST = 64  # resolutions of a recipe
_ROUNDED = 0.005  # how far from 1 shares may add up to, as written by hand
_POSITIVE = _Rule("a number above 0", lambda value: _number(value) and value > 0)
_NOT_NEGATIVE = _Rule("a number of at least 0", lambda value: _number(value) and value >= 0)
_SHARE = _Rule("a number in [0, 1)", lambda value: _number(value) and 0 <= value < 1)
_YES_OR_NO = _Rule("true or false", lambda value: isinstance(value, bool))
_SHARES = _Rule(
    "a table of resolutions and their shares of a batch, such as {32 = 0.6, 16 = 0.4}",
    lambda pair: _is_pair(pair) and _whole(10**7).holds(pair[0]) and _part(pair[1]),
    count=None,
)
_RULES = {
    "epochs": _whole(10**6),
    "batch_size": _Rule(
        "a whole number from 1 to 1000000, or 'auto'", lambda value: value == "auto" or _whole(10**6).holds(value)
    ),
    "optimizer": _one_of("adamw", "sgd"),
    "learning_rate": _POSITIVE,
    "final_learning_rate": _NOT_NEGATIVE,
    "betas": _Rule("two numbers in [0, 1)", _SHARE.holds, count=2),
    "momentum": _SHARE,
    "weight_decay": _NOT_NEGATIVE,
    "flip": _YES_OR_NO,
    "crop_padding": _SHARE,
    "trivial_augment": _YES_OR_NO,
    "resolutions": _Rule("a list of whole numbers from 1 to 10000000", _whole(10**7).holds, count=None),
    "policy": _one_of("exact", "cheap"),
    "precision": _one_of("auto", "float32", "bfloat16"),
    "label_smoothing": _SHARE,
    "weight_averaging": _SHARE,
    "cutout": _SHARE,
    "cutmix": _Rule("a number in [0, 1]", _part),
    "cutmix_from": _whole(10**7),
    "views": _whole(64),
    "distillation": _Rule("a number in [0, 1]", _part),
    "warm_up": _NOT_NEGATIVE,
    "nesterov": _YES_OR_NO,
    "shares": _SHARES,
    "final_shares": _SHARES,
    "shares_change_at": _Rule("a number between 0 and 1", lambda value: _number(value) and 0 < value < 1),
}


Shares: TypeAlias = tuple[tuple[int, float], ...]
"""Resolutions, highest first, and the share of every batch that each of them has."""


def _as_shares(value: Any) -> Any:
    """Pairs of what TOML holds as a table with text for keys, and JSON as lists; anything else as it is."""
    pairs = value.items() if isinstance(value, Mapping) else value
    if not isinstance(value, Mapping | list | tuple) or not all(map(_is_pair, pairs)):
        return value
    return tuple((int(n) if isinstance(n, str) and re.fullmatch("[0-9]{1,8}", n) else n, share) for n, share in pairs)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2


def _ordered(name: str, shares: Shares) -> Shares:
    total = sum(share for _, share in shares)
    if shares and not abs(total - 1) < _ROUNDED:
        raise ArrnError(f"{name} must add up to 1, got {total:.4g} in {dict(shares)}")
    if len(dict(shares)) < len(shares):
        raise ArrnError(f"{name} must name each resolution once, got {shares!r:.80}")
    return tuple(sorted(shares, reverse=True))


@dataclass(frozen=True)
class Recipe:
    """How to train. The defaults are the paper's for CIFAR-10 and CIFAR-100.

    Attributes:
        epochs: passes over the training set.
        batch_size: samples per step, at most; "auto" is what suits their number and fits the memory, chosen as a run
            begins.
        optimizer: "adamw" or "sgd".
        learning_rate: at the start.
        final_learning_rate: at the end; in between it follows half a cosine, step by step.
        betas: AdamW's.
        momentum: SGD's.
        weight_decay: decoupled for AdamW, added to the gradient for SGD.
        flip: mirror half of the samples along the last axis.
        crop_padding: zeros along each edge before the random crop, as a part of the size.
        trivial_augment: first do one of the random operations of TrivialAugmentWide to each image.
        resolutions: every batch is shared out evenly over these lower resolutions; none by default.
        policy: the level for inputs between two sizes, in training and evaluation of an ARRN.
        precision: "auto" (bfloat16 on a GPU that has it), "float32" or "bfloat16".
        label_smoothing: the part of each target that is spread evenly over all classes.
        weight_averaging: the decay of a moving average of the weights, which is what is validated and saved; 0 is none.
        cutout: the side of a square of the mean value on each sample, as a part of the size; 0 is none.
        cutmix: how likely a sample is to have a box of another pasted in, with a part of its target (`cut_and_mix`).
        cutmix_from: samples at lower resolutions than this stay whole; needs `shares` or `resolutions`.
        views: how often each sample of a batch is taken in a step, with other random changes and, where a batch is
            shared out over resolutions, at other ones.
        distillation: the part of the loss of later views that asks for the first view's prediction of the same sample
            instead of its label. Shares give the first view the higher resolutions; all views are augmented alike.
        warm_up: epochs in which the learning rate rises linearly, before its half cosine.
        nesterov: look ahead with SGD's momentum.
        shares: of every batch, by resolution: what an ARRN's dropout leaves, or what a batch is shared out over for a
            fixed or switchable network (`resolutions` follow from it); none leaves both as they are.
        final_shares: those of the last part of training; none keeps `shares`.
        shares_change_at: the part of training after which `final_shares` hold.
    """

    epochs: int = 100
    batch_size: int | Literal["auto"] = 128
    optimizer: Literal["adamw", "sgd"] = "adamw"
    learning_rate: float = 1e-3
    final_learning_rate: float = 1e-5
    betas: tuple[float, float] = (0.9, 0.999)
    momentum: float = 0.9
    weight_decay: float = 1e-3
    flip: bool = True
    crop_padding: float = 0.125
    trivial_augment: bool = False
    resolutions: tuple[int, ...] = ()
    policy: Policy = "exact"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    label_smoothing: float = 0.0
    weight_averaging: float = 0.0
    cutout: float = 0.0
    cutmix: float = 0.0
    cutmix_from: int = 1
    views: int = 1
    distillation: float = 0.0
    warm_up: float = 0.0
    nesterov: bool = False
    shares: Shares = ()
    final_shares: Shares = ()
    shares_change_at: float = 0.5

    def __post_init__(self) -> None:
        for name in ("shares", "final_shares"):
            object.__setattr__(self, name, _as_shares(getattr(self, name)))
        for name, rule in _RULES.items():
            value = getattr(self, name)
            if rule.count != 1 and isinstance(value, list):
                value = tuple(value)
                object.__setattr__(self, name, value)
            items = value if rule.count != 1 and isinstance(value, tuple) else (value,)
            fits = len(items) == rule.count if rule.count is not None else len(items) <= _LONGEST
            if not fits or not all(map(rule.holds, items)):
                raise ArrnError(f"{name} must be {rule.words}, got {value!r:.80}")
        for name in ("shares", "final_shares"):
            object.__setattr__(self, name, _ordered(name, getattr(self, name)))
        if self.final_shares and not self.shares:
            raise ArrnError("final_shares replace shares late in training, but this recipe has no shares")
        if self.cutmix_from > 1 and not (self.shares or self.resolutions):
            raise ArrnError(
                f"cutmix_from={self.cutmix_from} needs shares or resolutions, which lower some of the samples"
            )
        if self.distillation and self.views == 1:
            raise ArrnError(
                f"distillation={self.distillation} needs views of 2 or more: later views learn from the first one"
            )
        if self.distillation and self.cutmix and self.cutmix_from > 1:
            raise ArrnError(
                f"distillation={self.distillation} takes all views alike, "
                f"so cutmix_from must be 1, got {self.cutmix_from}"
            )
        if self.warm_up >= self.epochs:
            raise ArrnError(f"warm_up must be less than epochs, which is {self.epochs}, got {self.warm_up}")

    def with_options(self, options: Mapping[str, Any]) -> Recipe:
        """The same recipe, but for `options`."""
        known = [option.name for option in dataclasses.fields(self)]
        for name in options:
            if name not in known:
                raise unknown_name("option of a recipe:", name, known)
        return dataclasses.replace(self, **options)

    def to_toml(self) -> str:
        """The recipe as `read_recipe` reads it."""
        options = dataclasses.asdict(self)
        tables = {name: _inline_table(options[name]) for name in ("shares", "final_shares")}
        return "".join(f"{name} = {tables.get(name, json.dumps(value))}\n" for name, value in options.items())


def _inline_table(shares: Shares) -> str:
    return "{" + ", ".join(f"{resolution} = {json.dumps(share)}" for resolution, share in shares) + "}"


PAPER_CIFAR = Recipe()
"""The paper's recipe for CIFAR-10 and CIFAR-100 (its appendix on hyperparameters)."""

# The paper does not state the momentum, and names no augmentation but TrivialAugmentWide: no flip, no crop.
PAPER_LARGER_IMAGES = Recipe(
    optimizer="sgd",
    learning_rate=1e-2,
    final_learning_rate=0.0,
    momentum=0.9,
    flip=False,
    crop_padding=0.0,
    trivial_augment=True,
    policy="cheap",
)
"""The paper's recipe for TinyImageNet and STL10, whose inputs between two sizes go to the lower one."""

# For gated networks on images of 32x32, found by a search on held-out images (docs/notes/design_search.md). The first
# half of each batch is at 32 and 24, the second the same images at the lower sizes.
FRONTIER = Recipe(
    batch_size=512,
    optimizer="sgd",
    learning_rate=0.4,
    final_learning_rate=0.0,
    nesterov=True,
    weight_decay=5e-4,
    warm_up=2.0,
    weight_averaging=0.995,
    cutmix=0.5,
    cutmix_from=16,
    views=2,
    shares=((32, 0.4), (24, 0.1), (16, 0.13), (12, 0.08), (8, 0.14), (6, 0.08), (4, 0.07)),
)

# For small networks on a few thousand samples: shorter, in smaller and larger steps. Sound is not mirrored.
_FEW_SOUNDS = Recipe(epochs=60, batch_size=64, learning_rate=3e-3, flip=False)
_FEW_VOLUMES = Recipe(epochs=60, batch_size=32, learning_rate=3e-3)

RECIPES = {
    "paper_cifar": PAPER_CIFAR,
    "paper_larger_images": PAPER_LARGER_IMAGES,
    "frontier": FRONTIER,
    "few_sounds": _FEW_SOUNDS,
    "few_volumes": _FEW_VOLUMES,
}
"""Recipes by the names that `arrn.datasets` gives them."""


def recipe_for(dataset: str) -> Recipe:
    """The recipe of a known data set, with the policy of its design; others start from `PAPER_CIFAR`.

    >>> recipe_for("stl10").optimizer, recipe_for("/home/me/pictures").optimizer
    ('sgd', 'adamw')
    """
    facts = facts_of(dataset)
    return RECIPES[facts.recipe].with_options({"policy": DESIGNS[facts.design].policy})


def read_recipe(path: Path, start: Recipe = PAPER_CIFAR) -> Recipe:
    """`start`, changed by the options in a TOML file; or one of `RECIPES`, by its name.

    Raises:
        ArrnError: names the file and the option.
    """
    if str(path) in RECIPES and not path.exists():
        return RECIPES[str(path)]
    try:
        options = read_toml(path)
    except OSError as error:
        known = ", ".join(RECIPES)
        raise ArrnError(
            f"cannot read the recipe {path}: {error.strerror or error}; by name there are {known}"
        ) from error
    try:
        return start.with_options(options)
    except ArrnError as error:
        raise ArrnError(f"{path}: {error}") from None
