"""Addresses on the hub, `hf://OWNER/NAME[@REVISION]`, for every command that takes the folder of a network."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args

import typer

from arrn.cli.console import say
from arrn.hub import hub_address, is_hub_address, locate

_ALSO = " Or hf://OWNER/NAME of the Hugging Face hub, with @REVISION after it for a branch, a tag or a commit."


def with_addresses(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose `folder` may be an address too; it is downloaded, and the command gets a folder."""

    @functools.wraps(command)
    def locating_first(*arguments: Any, folder: str, **options: Any) -> None:
        found = locate(folder)
        address = hub_address(found)
        if is_hub_address(folder) and address != folder and "-" not in (options.get("json"), options.get("csv")):
            say(f"{folder} is {address}")
        command(*arguments, folder=found, **options)

    signature = inspect.signature(command, eval_str=True)
    before = signature.parameters["folder"]
    told: Any = get_args(before.annotation)[1]
    annotation = Annotated[str, typer.Argument(help=f"{told.help}{_ALSO}")]
    parameters = {**signature.parameters, "folder": before.replace(annotation=annotation)}
    locating_first.__signature__ = signature.replace(parameters=list(parameters.values()))  # type: ignore[attr-defined]
    locating_first.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return locating_first
