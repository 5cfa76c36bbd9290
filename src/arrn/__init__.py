"""Adaptive Resolution Residual Networks: one trained network for signals of many resolutions.

Names are loaded when first used, so ``import arrn`` costs nothing and ``arrn.signal`` and
``arrn.nn`` need torch and numpy alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arrn import models, nn, signal, testing
    from arrn.creating import create_backbone, create_model
    from arrn.deploy import Predictor, push_to_hub
    from arrn.errors import ArrnError, ConstancyError
    from arrn.models import list_models, transplant
    from arrn.runs import train
    from arrn.saving import load, save

__version__ = "0.2.0"

__all__ = [
    "ArrnError",
    "ConstancyError",
    "Predictor",
    "__version__",
    "create_backbone",
    "create_model",
    "list_models",
    "load",
    "models",
    "nn",
    "push_to_hub",
    "save",
    "signal",
    "testing",
    "train",
    "transplant",
]

_HOMES = {
    "ArrnError": "arrn.errors",
    "ConstancyError": "arrn.errors",
    "Predictor": "arrn.deploy",
    "create_backbone": "arrn.creating",
    "create_model": "arrn.creating",
    "list_models": "arrn.models",
    "load": "arrn.saving",
    "push_to_hub": "arrn.deploy",
    "save": "arrn.saving",
    "train": "arrn.runs",
    "transplant": "arrn.models",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in __all__:
        value = importlib.import_module(f"arrn.{name}")
    else:
        raise AttributeError(f"module 'arrn' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
