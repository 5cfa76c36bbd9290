"""Checking the options of a model."""

from __future__ import annotations

from numbers import Integral

from arrn.errors import ArrnError

__all__ = ["as_whole"]


def as_whole(name: str, value: object, least: int) -> int:
    """`value`, numpy's too, as a whole number of at least `least`; refuses others, by the option's name.

    >>> as_whole("num_classes", 10, least=0)
    10
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ArrnError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)
