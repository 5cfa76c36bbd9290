"""Runs the notebooks and stores what they show, so that a reader sees the pictures without running anything.

    python tools/run_notebooks.py              # after a change of a notebook, or of what one shows
    python tools/run_notebooks.py --check      # changes nothing; fails where a cell fails or shows something else

tests/test_notebooks.py runs the second.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = Path(__file__).parents[1] / "notebooks"
LONGEST = 120
"""Seconds that a cell may take."""


def execute(path: Path) -> Any:
    """The notebook with its outputs, after a run from the top in a fresh kernel, on one CPU thread.

    Raises:
        CellExecutionError: where a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    os.environ["OMP_NUM_THREADS"] = "1"  # the same numbers on machines with any number of cores
    place = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, timeout=LONGEST, resources=place, record_timing=False, coalesce_streams=True)
    manager = client.create_kernel_manager()
    with tempfile.TemporaryDirectory() as sockets:
        if os.name == "posix":  # sockets that are files, so that no port is opened
            manager.transport, manager.ip = "ipc", str(Path(sockets) / "kernel")
        client.execute()
    notebook.metadata["language_info"] = {
        "name": "python"
    }  # without the version, which differs from machine to machine
    return notebook


def kinds(notebook: Any) -> list[list[str]]:
    """What each cell shows: the kinds of its outputs, such as "stream" or "image/png"."""
    return [
        sorted({kind for output in cell.outputs for kind in output.get("data", [output.output_type])})
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def main() -> None:
    """Runs each notebook and writes it back, or says what is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, help="by default all in notebooks/")
    parser.add_argument("--check", action="store_true", help="change nothing")
    options = parser.parse_args()
    for path in options.notebooks or sorted(FOLDER.glob("*.ipynb")):
        start = time.monotonic()
        try:
            notebook = execute(path.resolve())
        except CellExecutionError as error:
            sys.exit(f"{path}: {error}")
        if not options.check:
            nbformat.write(notebook, path)
        elif kinds(notebook) != kinds(nbformat.read(path, as_version=4)):
            sys.exit(f"{path} shows another kind of thing than it stores: run python tools/run_notebooks.py")
        print(f"{path.name}: {time.monotonic() - start:.0f} s, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
