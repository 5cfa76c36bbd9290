"""What was measured of a saved network: the accuracy per resolution that lies in its folder."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arrn.errors import ArrnError, plain
from arrn.reading import read_json
from arrn.signal.grid import Grid

logger = logging.getLogger(__name__)

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
    """The accuracies in a network's folder; None where there are none. A damaged file is left out with a warning."""
    for name in FILES:
        try:
            return _read(folder / name)
        except FileNotFoundError:
            continue
        except OSError as error:
            wrong = f"{folder / name} cannot be read: {error.strerror or error}"
        except ArrnError as error:
            wrong = str(error)
        except KeyError as error:
            wrong = f"{folder / name} has no {error}"
        except (TypeError, ValueError, OverflowError):
            wrong = f"{folder / name} does not hold accuracies as `arrn evaluate` writes them"
        logger.warning("%s; its accuracies are left out: `arrn evaluate` measures them again", plain(wrong))
    return None


def _read(file: Path) -> Evaluated:
    document = read_json(file)
    results = [_result(result, file) for result in document["results"] if _counts(result)]
    return Evaluated(file.name, str(document["dataset"]), results, dict(document.get("provenance") or {}))


def _counts(result: Mapping[str, Any]) -> bool:
    """Whether a result is of the network as an export runs it: skipping levels, at one resolution."""
    return result["adapt"] is not False and result["resolution"] is not None


def _result(result: Mapping[str, Any], file: Path) -> dict[str, Any]:
    accuracy, total = float(result["accuracy"]), int(result["total"])
    if not 0 <= accuracy <= 1 or total < 1:
        raise ArrnError(f"{file}: an accuracy is a share from 0 to 1 of at least 1 sample, got {accuracy} of {total}")
    return {
        "resolution": int(result["resolution"]),
        "policy": None if result["policy"] is None else str(result["policy"]),
        "accuracy": accuracy,
        "total": total,
    }
