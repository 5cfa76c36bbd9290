"""A recipe: how a network is trained, as data. The loop does not know which data set it trains on."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from arrn.errors import ArrnError, unknown_name
from arrn.nn.arrn import Policy

__all__ = ["PAPER_CIFAR", "Recipe", "read_recipe"]


def _option(default: Any, rule: str, **bounds: Any) -> Any:
    """A field with the rule for its values, in words, and what checks it."""
    return field(default=default, metadata={"rule": rule, **bounds})


@dataclass(frozen=True)
class Recipe:
    """How to train. The defaults are the paper's for CIFAR-10 and CIFAR-100.

    Attributes:
        epochs: passes over the training set.
        batch_size: samples per step, at most.
        optimizer: "adamw" or "sgd".
        learning_rate: at the start.
        final_learning_rate: at the end; in between it follows half a cosine, step by step.
        betas: AdamW's.
        momentum: SGD's.
        weight_decay: decoupled for AdamW, added to the gradient for SGD.
        flip: mirror half of the samples along the last axis.
        crop_padding: zeros along each edge before the random crop, as a part of the size.
        resolutions: every batch is shared out evenly over these lower resolutions; none by default.
        policy: the level for inputs between two sizes, in training and evaluation of an ARRN.
        precision: "auto" (bfloat16 on a GPU that has it), "float32" or "bfloat16".
    """

    epochs: int = _option(100, "a whole number of at least 1", kind=int, least=1)
    batch_size: int = _option(128, "a whole number of at least 1", kind=int, least=1)
    optimizer: Literal["adamw", "sgd"] = _option("adamw", "'adamw' or 'sgd'", choices=("adamw", "sgd"))
    learning_rate: float = _option(1e-3, "a number above 0", kind=float, above=0)
    final_learning_rate: float = _option(1e-5, "a number of at least 0", kind=float, least=0)
    betas: tuple[float, float] = _option((0.9, 0.999), "two numbers in [0, 1)", kind=float, count=2, least=0, below=1)
    momentum: float = _option(0.9, "a number in [0, 1)", kind=float, least=0, below=1)
    weight_decay: float = _option(1e-3, "a number of at least 0", kind=float, least=0)
    flip: bool = _option(True, "true or false", kind=bool)
    crop_padding: float = _option(0.125, "a number in [0, 1)", kind=float, least=0, below=1)
    resolutions: tuple[int, ...] = _option((), "a list of whole numbers of at least 1", kind=int, count=None, least=1)
    policy: Policy = _option("exact", "'exact' or 'cheap'", choices=("exact", "cheap"))
    precision: Literal["auto", "float32", "bfloat16"] = _option(
        "auto", "'auto', 'float32' or 'bfloat16'", choices=("auto", "float32", "bfloat16")
    )

    def __post_init__(self) -> None:
        for option in dataclasses.fields(self):
            value = getattr(self, option.name)
            if "count" in option.metadata and isinstance(value, list):
                value = tuple(value)
            if not _obeys(value, option.metadata):
                raise ArrnError(f"{option.name} must be {option.metadata['rule']}, got {value!r}")
            # Whole numbers are welcome where numbers are, and are kept as what the field is.
            if option.metadata.get("kind") is float:
                value = tuple(map(float, value)) if isinstance(value, tuple) else float(value)
            object.__setattr__(self, option.name, value)

    def with_options(self, options: Mapping[str, Any]) -> Recipe:
        """The same recipe, but for `options`."""
        known = [option.name for option in dataclasses.fields(self)]
        for name in options:
            if name not in known:
                raise unknown_name("option of a recipe:", name, known)
        return dataclasses.replace(self, **options)

    def to_toml(self) -> str:
        """The recipe as `read_recipe` reads it."""
        return "".join(f"{name} = {json.dumps(value)}\n" for name, value in dataclasses.asdict(self).items())


PAPER_CIFAR = Recipe()
"""The paper's recipe for CIFAR-10 and CIFAR-100 (its appendix on hyperparameters)."""


def read_recipe(path: Path, start: Recipe = PAPER_CIFAR) -> Recipe:
    """`start`, changed by the options in a TOML file.

    Raises:
        ArrnError: names the file and the option.
    """
    try:
        options = tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise ArrnError(f"cannot read the recipe {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ArrnError(f"{path} is not valid TOML: {error}") from None
    try:
        return start.with_options(options)
    except ArrnError as error:
        raise ArrnError(f"{path}: {error}") from None


def _obeys(value: Any, metadata: Mapping[str, Any]) -> bool:
    if "choices" in metadata:
        return isinstance(value, str) and value in metadata["choices"]
    if "count" in metadata:
        return (
            isinstance(value, tuple)
            and metadata["count"] in (None, len(value))
            and all(_is_number(item, metadata) for item in value)
        )
    return _is_number(value, metadata)


def _is_number(value: Any, metadata: Mapping[str, Any]) -> bool:
    kind = metadata["kind"]
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if not isinstance(value, int if kind is int else int | float) or not math.isfinite(value):
        return False
    return (
        value >= metadata.get("least", -math.inf)
        and value > metadata.get("above", -math.inf)
        and value < metadata.get("below", math.inf)
    )
