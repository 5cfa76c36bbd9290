"""Where a result came from: hardware, versions and commit, written beside every number."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from arrn import __version__


def provenance() -> dict[str, object]:
    """The machine, the versions and the commit that this process runs with.

    The commit is that of the environment variable ``ARRN_COMMIT``, or of the checkout that holds the
    package; None where there is neither.
    """
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "arrn": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "gpu": gpu,
        "commit": os.environ.get("ARRN_COMMIT") or _commit(),
    }


def machine_of(origin: Mapping[str, Any]) -> str:
    """In words, what `provenance` gave, here or elsewhere.

    >>> machine_of({"gpu": None, "processor": "AMD EPYC", "torch": "2.11.0"})
    'AMD EPYC, torch 2.11.0, commit unknown'
    """
    hardware = origin.get("gpu") or origin.get("processor") or "unknown"
    return f"{hardware}, torch {origin.get('torch', 'unknown')}, commit {origin.get('commit') or 'unknown'}"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    here = Path(__file__).resolve().parent
    try:
        found = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    # A package installed below some other project's checkout is not of that project's commit.
    tracked = subprocess.run(["git", "-C", str(here), "ls-files", "--error-unmatch", __file__], capture_output=True)
    return found.stdout.strip() if found.returncode == 0 and tracked.returncode == 0 else None
