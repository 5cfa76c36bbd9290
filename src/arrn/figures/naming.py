"""What a run is called in a legend, and which look it has, from what was trained and how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count

from arrn.experiments import Result
from arrn.figures.runs import Run
from arrn.models.transplanting import TRANSPLANTS
from arrn.plots import Curve, Point

__all__ = ["ARCHITECTURES", "name_curves", "source_of"]

ARCHITECTURES = {
    "resnet18": ("ResNet18", "resnet", 0),
    "resnet50": ("ResNet50", "resnet", 1),
    "resnet101": ("ResNet101", "resnet", 2),
    "wide_resnet50_2": ("WideResNet50V2", "wide_resnet", 0),
    "wide_resnet101_2": ("WideResNet101V2", "wide_resnet", 1),
    "mobilenet_v3_small": ("MobileNetV3Small", "mobilenet", 0),
    "mobilenet_v3_large": ("MobileNetV3Large", "mobilenet", 1),
    "efficientnet_v2_s": ("EfficientNetV2S", "efficientnet", 0),
    "efficientnet_v2_m": ("EfficientNetV2M", "efficientnet", 1),
    "efficientnet_v2_l": ("EfficientNetV2L", "efficientnet", 2),
    "resnet18_small_stem": ("ResNet18, small stem", "resnet", 3),
    "resnet18_switchable": ("ResNet18, switchable", "switchable", 0),
    "fourier_operator": ("Fourier operator", "fourier", 0),
}
"""Of every network that is no ARRN: its title, its family and its number in the family."""


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
