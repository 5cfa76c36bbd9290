"""Results with invented numbers, for trying figures: of every planned run, or of some."""

from collections.abc import Callable, Iterable
from typing import Any

from arrn.evaluation import Report, wilson_interval
from arrn.experiments import Result
from arrn.experiments.plan import PlannedRun, plan

RESOLUTIONS = (32, 28, 24, 20, 16, 12, 8, 6, 4)
ORIGIN = {"arrn": "0", "torch": "0", "commit": None, "gpu": None}
TOTAL = 1000
LOSS = {"perfect": 0, "fair": 10, "poor": 40}

Correct = Callable[[PlannedRun, int, bool | None], int]


def correct_answers(run: PlannedRun, resolution: int, adapt: bool | None) -> int:
    """Of 1000: falls with resolution, faster without dropout, and with a kernel's error where dropout and
    adaptation do not go together."""
    dropout = run.model.startswith("arrn") and run.options.get("dropout") != 0.0
    fall = (10 if dropout else 18) * (32 - resolution)
    loss = 0 if adapt is None or adapt == dropout or resolution == 32 else LOSS[run.options.get("kernel", "perfect")]
    return 880 - fall - loss - sum(map(ord, run.model)) % 40


def invent(run: PlannedRun, seed: int = 0, dataset: str = "sample", correct: Correct = correct_answers) -> Result:
    """A result of a planned run."""
    adaptive = run.model.startswith("arrn")
    ways: list[Any] = [(a, p) for a in (True, False) for p in ("exact", "cheap")] if adaptive else [(None, None)]
    answers = []
    for resolution in RESOLUTIONS:
        for adapt, policy in ways:
            count = correct(run, resolution, adapt) + seed
            answers.append(
                {
                    "resolution": resolution,
                    "adapt": adapt,
                    "policy": policy,
                    "accuracy": count / TOTAL,
                    "correct": count,
                    "total": TOTAL,
                    "interval": list(wilson_interval(count, TOTAL)),
                    "balanced_accuracy": count / TOTAL,
                    "levels": [],
                }
            )
    costs = [(r, a, 1.0 if a is None else 2.0 if not a or r > 16 else 0.5) for r in RESOLUTIONS for a, _ in ways[::2]]
    how = {"samples": TOTAL, "batch_size": 10, "precision": "float32", "device": "cpu"}
    timings = [{"resolution": r, "adapt": a, "seconds": s, "lower": s, "upper": s, **how} for r, a, s in costs]
    facts = {"split": "test", "resampler": "perfect", "skipped": 0, "provenance": ORIGIN}
    options = {"kernel": "perfect", **({"dropout": 0.4} if adaptive else {}), **run.options}
    return Result(
        name=run.name,
        experiments=run.experiments,
        model={"name": run.model, "options": options},
        kernel=options["kernel"] if adaptive else None,
        dropout=options["dropout"] if adaptive else None,
        dataset=dataset,
        split="test",
        seed=seed,
        recipe={"epochs": 3, "policy": "exact", "resolutions": [], **run.recipe},
        parameters={"base": 1, "total": 2},
        multiply_adds=[{"resolution": r, "adapt": a, "multiply_adds": int(1e6 * s)} for r, a, s in costs],
        report=Report(run.model, dataset, answers, facts),
        training_seconds=1.0,
        provenance=ORIGIN,
        command="none: invented for a test",
        timings=timings if {"efficiency", "frontier"} & set(run.experiments) else [],
    )


def invent_all(seeds: Iterable[int] = (0,), dataset: str = "sample") -> list[Result]:
    """A result of every planned run."""
    return [invent(run, seed, dataset) for run in plan(dataset) for seed in seeds]
