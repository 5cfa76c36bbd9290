"""What a run is called in a legend, and which look it has, from what was trained and how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count

from arrn.experiments import Result
from arrn.figures.runs import Run
from arrn.models.transplanting import TRANSPLANTS
from arrn.plots import ARCHITECTURES, Curve, Point

__all__ = ["name_curves", "source_of"]


def source_of(result: Result) -> str | None:
    """The architecture that an ARRN was transplanted from; None for others."""
    source = str(result.model["name"]).removeprefix("arrn_")
    return source if result.adaptive and source in TRANSPLANTS else None


def name_curves(runs: Sequence[tuple[Run, tuple[Point, ...]]]) -> list[Curve]:
    """Curves with labels and looks that tell them apart, in the order given."""
    identities = [_identity(run.first) for run, _ in runs]
    counts = Counter(label for label, _, _ in identities)
    looks: set[tuple[str, int]] = set()
    curves = []
    for (run, points), (label, family, first) in zip(runs, identities, strict=True):
        # Variants that model and recipe do not tell apart: the names of their runs do.
        label = label if counts[label] == 1 else f"{label} ({run.name})"
        member = next(n for n in count(first) if (family, n) not in looks)
        looks.add((family, member))
        curves.append(Curve(label, family, points, member))
    return curves


def _identity(result: Result) -> tuple[str, str, int]:
    model, resolutions = str(result.model["name"]), result.recipe["resolutions"]
    if result.adaptive:
        source = source_of(result)
        title = "ARRN" if source is None else f"{ARCHITECTURES[source][0]} as ARRN"
        title = title if result.kernel == "perfect" else f"{title}, {result.kernel} kernel,"
        if result.dropout:
            return f"{title} with Laplacian dropout", "arrn", 0
        return f"{title} without dropout", "arrn without dropout", 0
    title, family, member = ARCHITECTURES.get(model, (model, "other", 0))
    if family == "switchable" or not resolutions:  # a switchable network always learns at several
        return title, family, member
    short = title.removeprefix("ResNet18, ")
    if len(resolutions) == 1:
        return f"{short}, only at {resolutions[0]}", "specialist", 0
    return f"{short}, random resolutions", "random", 0
