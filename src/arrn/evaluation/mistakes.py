"""What a network gets wrong: accuracy and confusion class by class, and the most confident wrong answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from arrn.data.batches import Batches
from arrn.data.source import Source
from arrn.errors import ArrnError
from arrn.evaluation.accuracy import Answers, Resampler, Setting, lower
from arrn.nn.network import Policy
from arrn.signal.grid import Grid

MATRIX_UP_TO = 32
"""Classes up to which the whole confusion matrix is told; of more classes, the most frequent confusions."""

_MOST_PAIRS = 1000


@dataclass(frozen=True)
class Mistake:
    """A wrong answer.

    Attributes:
        setting: in which it was given.
        where: the file of the sample, or the file and the row.
        truth: the number of the sample's class.
        answer: the number of the class that the network gave.
        probability: that the network gives `answer`.
        grid: on which the sample entered the network.
        sample: as the network was given it, lowered to the resolution, in the units it is stored in; float32 of
            shape (channels, *space).
    """

    setting: Setting
    where: str
    truth: int
    answer: int
    probability: float
    grid: Grid
    sample: torch.Tensor


def leading_answers(answers: Sequence[Answers], policy: Policy | None) -> list[Answers]:
    """For each resolution the answers that matter most: with levels skipped, by the network's own policy.

    Where that was not evaluated: the first setting of the resolution. As the samples come is first, then from the
    highest resolution down.
    """
    best: dict[int | None, Answers] = {}
    for each in answers:
        resolution = each.setting.resolution
        if resolution not in best or (each.setting.adapt, each.setting.policy) == (True, policy):
            best[resolution] = each
    return [best[r] for r in sorted(best, key=lambda r: (r is not None, -(r or 0)))]


def by_class(answers: Answers, classes: int) -> dict[str, Any]:
    """The answers of one setting, counted class by class, as JSON holds them.

    Returns:
        The setting's resolution, adapt and policy; `correct`, a number for each class; and for up to `MATRIX_UP_TO`
        classes `confusion`, a row for each true class with the number of samples that got each answer; for more
        classes `confused`: [true class, answer, number of samples], the most frequent confusions first, at most
        1,000.

    >>> answers = Answers(Setting(8), torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), ((8, 8),) * 3)
    >>> found = by_class(answers, classes=2)
    >>> found["correct"], found["confusion"]
    ([1, 1], [[1, 1], [0, 1]])
    """
    setting = answers.setting
    pairs = answers.labels * classes + answers.predictions
    found: dict[str, Any] = {"resolution": setting.resolution, "adapt": setting.adapt, "policy": setting.policy}
    right = answers.labels[answers.predictions == answers.labels]
    found["correct"] = torch.bincount(right, minlength=classes).tolist()
    if classes <= MATRIX_UP_TO:
        found["confusion"] = torch.bincount(pairs, minlength=classes**2).view(classes, classes).tolist()
    else:
        kinds, counts = torch.unique(pairs[answers.predictions != answers.labels], return_counts=True)
        order = counts.argsort(descending=True, stable=True)[:_MOST_PAIRS]
        found["confused"] = [
            [kind // classes, kind % classes, count]
            for kind, count in zip(kinds[order].tolist(), counts[order].tolist(), strict=True)
        ]
    return found


def sample_order(sizes: Sequence[Grid], batches: Batches) -> list[int]:
    """The place in its source of each sample, in the order in which `evaluate` answers.

    Args:
        sizes: of the samples, in the order of the source.
        batches: of these samples on their own grids.
    """
    members: defaultdict[Grid, list[int]] = defaultdict(list)
    for index, size in enumerate(sizes):
        members[size].append(index)
    buckets = [members[grid] for grid in batches.grids]
    # The answers of a team's processes are gathered one process after the other.
    shares = [batch for rank in range(batches.team.size) for batch in batches.plan_in_order(rank)]
    return [buckets[batch.bucket][place] for batch in shares for place in batch.places.tolist()]


def worst_mistakes(
    answers: Answers, source: Source, order: Sequence[int], count: int, resampler: Resampler = "perfect"
) -> list[Mistake]:
    """The `count` most confident wrong answers of one setting, each with its sample; fewer where fewer are wrong.

    Args:
        answers: with their probabilities.
        source: of the samples.
        order: the place in the source of each answer's sample.
        count: at most.
        resampler: what made lower resolutions.
    """
    if answers.probabilities is None:
        raise ArrnError("the worst mistakes need the probabilities of the answers")
    wrong = torch.nonzero(answers.predictions != answers.labels)[:, 0]
    worst = wrong[answers.probabilities[wrong].argsort(descending=True, stable=True)[:count]]
    resolution, found = answers.setting.resolution, []
    for place in worst.tolist():
        sample = source.read(order[place])[None].float()
        if resolution is not None:
            sample = lower(sample, tuple(min(n, resolution) for n in sample.shape[2:]), resampler)
        found.append(
            Mistake(
                answers.setting,
                source.where(order[place]),
                int(answers.labels[place]),
                int(answers.predictions[place]),
                float(answers.probabilities[place]),
                answers.grids[place],
                sample[0],
            )
        )
    return found
