"""`--import`: the modules of one's own that build networks, for every command that loads or builds one."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

_OPTION = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        help="Import a module of your own that builds networks, such as package.module, also from this folder; "
        "repeatable. Without this option no code that a file names is run.",
    ),
]


def with_imports(command: Callable[..., None]) -> Callable[..., None]:
    """A command that also takes `--import`, and imports before it does anything else."""

    @functools.wraps(command)
    def importing_first(*arguments: Any, imports: list[str] | None = None, **options: Any) -> None:
        if imports:
            from arrn.models.registry import import_modules

            if (here := str(Path.cwd())) not in sys.path:
                sys.path.insert(0, here)
            import_modules(imports)
        command(*arguments, **options)

    signature = inspect.signature(command, eval_str=True)
    added = inspect.Parameter("imports", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_OPTION)
    parameters = [*signature.parameters.values(), added]
    importing_first.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    importing_first.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return importing_first
