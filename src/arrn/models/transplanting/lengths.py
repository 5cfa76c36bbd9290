"""Letting a trace record `len`, which Python makes answer by a number where there is only a stand-in."""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from torch import fx, nn

__all__ = ["recorded_lengths"]


@contextlib.contextmanager
def recorded_lengths(network: nn.Module) -> Iterator[None]:
    """Within it, ``len(x)`` in the code of the network's classes is recorded where x is being traced.

    As `torch.fx.wrap("len")` in their files would do, which a user cannot add to somebody else's network.
    """
    classes = {kind for module in network.modules() for kind in type(module).__mro__}
    functions = [value for kind in classes for value in vars(kind).values() if isinstance(value, FunctionType)]
    patched: list[dict[str, Any]] = []
    try:
        for names in (function.__globals__ for function in functions):
            if "len" not in names:
                names["len"] = _length
                patched.append(names)
        yield
    finally:
        for names in patched:
            del names["len"]


def _length(value: Any) -> Any:
    if isinstance(value, fx.Proxy):
        return value.tracer.create_proxy("call_function", builtins.len, (value,), {})
    return builtins.len(value)
