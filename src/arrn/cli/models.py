"""`arrn models`."""

from __future__ import annotations

from arrn.cli.console import console

__all__ = ["models"]


def models() -> None:
    """List the models that `arrn.create_model` builds.

    Example: arrn models
    """
    from arrn.models import list_models

    for name in list_models():
        console.print(name, highlight=False)
