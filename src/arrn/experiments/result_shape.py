"""What a result file must hold: names and types, checked when it is read."""

from __future__ import annotations

from typing import Any

from arrn.errors import ArrnError

__all__ = ["RESULT_SHAPE", "check_shape"]

Number = int | float

RESULT_SHAPE: dict[str, Any] = {
    "name": str,
    "experiments": [str],
    "model": {"name": str, "options": {}},
    "kernel": str | None,
    "dropout": float | int | None,
    "dataset": str,
    "split": str,
    "seed": int,
    "recipe": {"epochs": int, "policy": str, "resolutions": [int]},
    "parameters": {"base": int, "total": int},
    "multiply_adds": [{"resolution": int, "adapt": bool | None, "multiply_adds": int}],
    "report": {
        "model": str,
        "dataset": str,
        "split": str,
        "resampler": object,
        "skipped": int,
        "provenance": {},
        "results": [
            {
                "resolution": int | None,
                "adapt": bool | None,
                "policy": str | None,
                "accuracy": Number,
                "correct": int,
                "total": int,
                "interval": [Number],
                "balanced_accuracy": Number,
                "levels": [{"grid": str, "correct": int, "total": int}],
            }
        ],
    },
    "discrepancies": [{"resolution": int, "discrepancy": Number}],
    "timings": [
        {
            "resolution": int,
            "adapt": bool | None,
            "seconds": Number,
            "lower": Number,
            "upper": Number,
            "samples": int,
            "batch_size": int,
            "precision": str,
            "device": str,
        }
    ],
    "training_seconds": Number,
    "provenance": {"arrn": str, "torch": str, "commit": str | None, "gpu": str | None},
    "command": str,
}
"""A dictionary has at least these keys, a list holds items of this shape, everything else is a type."""


def check_shape(value: Any, shape: Any, where: str) -> None:
    """Refuses a value that is not of the shape.

    >>> check_shape({"a": [1, 2]}, {"a": [int]}, "here")

    Raises:
        ArrnError: names the place and what should be there.
    """
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            raise ArrnError(f"{where} should be an object, got {value!r:.80}")
        for name, inner in shape.items():
            if name not in value:
                raise ArrnError(f"{where} has no {name!r}")
            check_shape(value[name], inner, f"{where}.{name}")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise ArrnError(f"{where} should be a list, got {value!r:.80}")
        for number, item in enumerate(value):
            check_shape(item, shape[0], f"{where}[{number}]")
    # Python takes True for a whole number; JSON does not.
    elif not isinstance(value, shape) or (isinstance(value, bool) and not isinstance(True, _without_numbers(shape))):
        raise ArrnError(f"{where} should be {getattr(shape, '__name__', shape)}, got {value!r:.80}")


def _without_numbers(shape: Any) -> tuple[type, ...]:
    kinds: tuple[type, ...] = getattr(shape, "__args__", (shape,))
    return tuple(kind for kind in kinds if kind not in (int, float))
