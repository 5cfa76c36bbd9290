"""Takes the modules that this distribution shares with `arrn` from the repository around it, when it is built."""

import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).parent
SHARED = HERE.parent / "src" / "arrn"
NAMES = ("errors.py", "reading.py", "py.typed", "runtime")
LICENSE = HERE.parent / "LICENSE"
PACKAGE = "arrn_runtime"


def version() -> str:
    """That of `arrn`; in an unpacked source distribution, what it was built with."""
    if SHARED.is_dir():
        (found,) = re.findall(r'^__version__ = "(.+)"$', (SHARED / "__init__.py").read_text(), re.MULTILINE)
    else:
        (found,) = re.findall(r"^Version: (.+)$", (HERE / "PKG-INFO").read_text(), re.MULTILINE)
    return str(found)


class SharedSources(BuildHookInterface):
    """A source distribution holds the modules already, beside those of the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before files are gathered."""
        if SHARED.is_dir():
            taken = [*(SHARED / name for name in NAMES), LICENSE]
            build_data["force_include"].update({str(path): f"{PACKAGE}/{path.name}" for path in taken})
