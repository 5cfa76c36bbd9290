"""What was measured of a saved network: the accuracy per resolution that lies in its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arrn.errors import ArrnError
from arrn.reading import read_json
from arrn.signal.grid import Grid

FILES = ("evaluation.json", "accuracy.json")
"""What `arrn evaluate` writes into a run's folder, and what lies beside published weights."""


@dataclass(frozen=True)
class Evaluated:
    """Accuracies of a network, as `arrn evaluate` measured them.

    Attributes:
        file: that they are from.
        dataset: that they are of.
        results: one for each resolution and policy: resolution, policy, accuracy, total.
        provenance: the machine, the versions and the commit.
    """

    file: str
    dataset: str
    results: Sequence[Mapping[str, Any]]
    provenance: Mapping[str, Any]

    def at(self, grid: Grid) -> float | None:
        """The accuracy at the resolution of a square grid; None where it was not measured."""
        if len(set(grid)) > 1:
            return None
        found = [result["accuracy"] for result in self.results if result["resolution"] == grid[0]]
        return found[0] if found else None

    def to_json(self) -> dict[str, Any]:
        """All of it as data that JSON holds."""
        return {
            "file": self.file,
            "dataset": self.dataset,
            "results": [dict(result) for result in self.results],
            "provenance": dict(self.provenance),
        }


def find_evaluation(folder: Path) -> Evaluated | None:
    """The accuracies in a network's folder; None where there are none that can be read."""
    for name in FILES:
        try:
            document = read_json(folder / name)
            results = [_result(result) for result in document["results"] if _counts(result)]
            return Evaluated(name, str(document["dataset"]), results, dict(document.get("provenance") or {}))
        except (OSError, ArrnError, KeyError, TypeError, ValueError):
            continue
    return None


def _counts(result: Mapping[str, Any]) -> bool:
    """Whether a result is of the network as an export runs it: skipping levels, at one resolution."""
    return result["adapt"] is not False and result["resolution"] is not None


def _result(result: Mapping[str, Any]) -> dict[str, Any]:
    accuracy, total = float(result["accuracy"]), int(result["total"])
    if not 0 <= accuracy <= 1 or total < 1:
        raise ValueError(f"no accuracy of {total} samples: {accuracy}")
    return {
        "resolution": int(result["resolution"]),
        "policy": None if result["policy"] is None else str(result["policy"]),
        "accuracy": accuracy,
        "total": total,
    }
