"""The report of an evaluation: what was evaluated, and the counts, shares and intervals of each setting, as JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from arrn.evaluation.accuracy import Answers, Resampler, Setting
from arrn.evaluation.mistakes import Mistake
from arrn.nn.network import Policy, as_network
from arrn.provenance import provenance
from arrn.signal.grid import format_grid
from arrn.writing import write_atomically, writing_to

_NUMBERS = re.compile(r"(?<=\[)\s+-?\d[-+.\de,\s]*(?=\])")


@dataclass(frozen=True)
class Report:
    """The document that `arrn evaluate --json` writes.

    Attributes:
        model: its name.
        dataset: its name.
        results: one dictionary for each setting: resolution (None: as the samples come), adapt, policy,
            accuracy, correct, total, interval (Wilson, 95%), balanced_accuracy, levels.
        facts: everything else that describes the evaluation: split, resampler, aspect, skipped (how many),
            skipped_samples (which, and why), remarks on how samples were read, class_counts, provenance; with details
            also axes, window, grids (of the levels, none for a network that has no levels), class_names, and by_class
            (see `arrn.evaluation.by_class`) and cost, one entry for each resolution.
        mistakes: the most confident wrong answers at each resolution, for a page; no part of the document.
    """

    model: str
    dataset: str
    results: Sequence[Mapping[str, Any]]
    facts: Mapping[str, Any]
    mistakes: Sequence[Mistake] = ()

    def document(self) -> dict[str, Any]:
        """The report as JSON holds it."""
        return {"model": self.model, "dataset": self.dataset, "results": list(self.results), **self.facts}


def report_from(document: Mapping[str, Any]) -> Report:
    """The report that `Report.document` made."""
    facts = {name: value for name, value in document.items() if name not in ("model", "dataset", "results")}
    return Report(document["model"], document["dataset"], document["results"], facts)


def write_report(report: Report, path: Path) -> None:
    """Writes the JSON file, whole or not at all."""
    with writing_to(path):
        text = json.dumps(report.document(), indent=2)
        # Numbers of one list on one line: a confusion matrix then looks like one.
        write_atomically(path, (_NUMBERS.sub(lambda found: " ".join(found[0].split()), text) + "\n").encode())


def settings_for(
    model: object,
    resolutions: Iterable[int | None],
    policies: Sequence[Policy] = ("exact", "cheap"),
    adapt: Sequence[bool] = (True, False),
) -> list[Setting]:
    """Every setting: resolutions, and for an ARRN every policy with and without adaptation."""
    if not as_network(model).adapts:
        return [Setting(resolution) for resolution in resolutions]
    return [Setting(r, skip, policy) for r in resolutions for skip in adapt for policy in policies]


def default_resolutions(model: object, size: int) -> tuple[int, ...]:
    """Down from a size in eighths to a half, then over 3/8, 1/4, 3/16 and 1/8, and the model's own sizes on the way.

    It starts from `size`, that of the samples, or from the model's largest if that is less: what is larger is brought
    down to it anyway, so rows above would all tell the same.

    >>> default_resolutions(None, 32)
    (32, 28, 24, 20, 16, 12, 8, 6, 4)
    """
    own = {max(grid) for grid in as_network(model).grids}
    top = min(size, max(own, default=size))
    sixteenths = (16, 14, 12, 10, 8, 6, 4, 3, 2)
    found = {max(1, top * n // 16) for n in sixteenths} | {n for n in own if n <= top}
    return tuple(sorted(found, reverse=True))


def make_report(
    answers: Sequence[Answers],
    *,
    model: str,
    dataset: str,
    split: str,
    resampler: Resampler,
    aspect: str = "stretch",
    skipped: Sequence[str] = (),
    remarks: Sequence[str] = (),
) -> Report:
    """Counts, shares and intervals of every setting, with where they came from.

    For an ARRN, `agreement` is the share of samples on which skipping levels and running them all give
    the same class (where both were evaluated). `skipped` names the samples that could not be read, with the reasons.
    """
    full = {a.setting.resolution: a for a in answers if a.setting.adapt is False}
    results = [_result(a, full.get(a.setting.resolution)) for a in answers]
    facts = {
        "split": split,
        "resampler": resampler,
        "aspect": aspect,
        "skipped": len(skipped),
        "skipped_samples": list(skipped),
        "remarks": list(remarks),
        "class_counts": torch.bincount(answers[0].labels).tolist() if answers else [],
        "provenance": provenance(),
    }
    return Report(model, dataset, results, facts)


def _result(answers: Answers, full: Answers | None) -> dict[str, Any]:
    setting = answers.setting
    result: dict[str, Any] = {
        "resolution": setting.resolution,
        "adapt": setting.adapt,
        "policy": setting.policy,
        "accuracy": answers.accuracy,
        "correct": answers.correct,
        "total": answers.total,
        "interval": list(wilson_interval(answers.correct, answers.total)),
        "balanced_accuracy": answers.balanced_accuracy,
        "levels": [
            {"grid": format_grid(grid), "correct": correct, "total": total}
            for grid, (correct, total) in answers.by_grid().items()
        ],
    }
    if setting.adapt and full is not None:
        result["agreement"] = float((answers.predictions == full.predictions).double().mean())
    return result


_UNEVEN = 1.5


def is_uneven(class_counts: Iterable[int]) -> bool:
    """Whether classes differ so much in size that balanced accuracy matters; those without samples do not count.

    >>> is_uneven([100, 90, 0]), is_uneven([100, 60])
    (False, True)
    """
    counts = [count for count in class_counts if count]
    return bool(counts) and max(counts) > _UNEVEN * min(counts)


def wilson_interval(correct: int, total: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """The interval in which the true proportion lies; z = 1.96 is for 95%.

    Wilson (1927). Unlike the normal approximation it stays within [0, 1] and is right near both ends.

    >>> tuple(round(bound, 4) for bound in wilson_interval(81, 100))
    (0.7222, 0.8749)
    """
    if total < 1 or not 0 <= correct <= total:
        raise ValueError(f"expected 0 <= correct <= total and total of at least 1, got {correct} of {total}")
    share = correct / total
    spread = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    centre = share + z * z / (2 * total)
    # The bounds at 0 and at 1 are exact, but for rounding.
    return min(share, max(0.0, (centre - spread) / scale)), max(share, min(1.0, (centre + spread) / scale))
