"""What designs are judged by, one thing or several: which of them none beats, and which are worth more training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from arrn.errors import ArrnError
from arrn.experiments.sweep import Standing

_KNOWN = "accuracy, accuracy@N for a resolution N, each (accuracy at each resolution), multiply-adds, parameters"


@dataclass(frozen=True)
class Objective:
    """Something that designs are judged by.

    Attributes:
        name: such as "accuracy@16".
        highest: whether more is better.
        value: of a design.
    """

    name: str
    highest: bool
    value: Callable[[Standing], float]

    def loss(self, standing: Standing) -> float:
        """The value, turned so that less is better."""
        return -self.value(standing) if self.highest else self.value(standing)


def accuracy_at(resolution: int) -> Objective:
    """Accuracy at one resolution."""
    return Objective(f"accuracy@{resolution}", True, lambda standing: standing.accuracies[resolution])


MEAN_ACCURACY = Objective("accuracy", True, lambda standing: standing.mean_accuracy)
MULTIPLY_ADDS = Objective("multiply-adds", False, lambda standing: standing.multiply_adds)
PARAMETERS = Objective("parameters", False, lambda standing: standing.parameters)
USUAL = (MEAN_ACCURACY, MULTIPLY_ADDS)


def read_objectives(text: str, resolutions: Sequence[int]) -> tuple[Objective, ...]:
    """Objectives from their names with commas between.

    >>> [objective.name for objective in read_objectives("each,multiply-adds", [32, 8])]
    ['accuracy@32', 'accuracy@8', 'multiply-adds']

    Args:
        text: names with commas between.
        resolutions: at which designs are evaluated.

    Raises:
        ArrnError: for a name that is none, or a resolution that is not evaluated.
    """
    return tuple({objective.name: objective for objective in _read(text, resolutions)}.values())


def _read(text: str, resolutions: Sequence[int]) -> Iterator[Objective]:
    for name in (part.strip() for part in text.split(",")):
        if name == "each":
            yield from map(accuracy_at, resolutions)
        elif name.startswith("accuracy@"):
            number = name.removeprefix("accuracy@")
            if number not in map(str, resolutions):
                raise ArrnError(f"designs are evaluated at {', '.join(map(str, resolutions))}; got {name!r:.80}")
            yield accuracy_at(int(number))
        else:
            found = next((each for each in (MEAN_ACCURACY, MULTIPLY_ADDS, PARAMETERS) if each.name == name), None)
            if found is None:
                raise ArrnError(f"objectives are {_KNOWN}; got {name!r:.80}")
            yield found


def find_front(standings: Sequence[Standing], objectives: Sequence[Objective] = USUAL) -> list[Standing]:
    """The designs that no other one beats: is as good in every objective and better in one. Cheapest first."""
    front = _fronts(standings, objectives)[0] if standings else []
    return sorted(front, key=lambda standing: (standing.multiply_adds, -standing.mean_accuracy))


def choose_best(standings: Sequence[Standing], count: int, objectives: Sequence[Objective] = USUAL) -> list[Standing]:
    """The `count` designs that are worth more training.

    First those that none beats, then those that only the former beat, and so on. Of designs that are equal in this,
    those with the most unlike neighbours come first, so that what is chosen spans the trade between the objectives
    (NSGA-II's crowding distance); the best in each objective is always among them.
    """
    chosen: list[Standing] = []
    for front in _fronts(standings, objectives):
        distances = _crowding(front, objectives)
        order = sorted(range(len(front)), key=lambda n: (-distances[n], -front[n].mean_accuracy))
        chosen += [front[n] for n in order]
    return chosen[:count]


def _fronts(standings: Sequence[Standing], objectives: Sequence[Objective]) -> list[list[Standing]]:
    """The designs in groups: each group is beaten by nobody but members of the groups before."""
    left = [(standing, tuple(objective.loss(standing) for objective in objectives)) for standing in standings]
    fronts = []
    while left:
        losses = {loss for _, loss in left}
        unbeaten = {loss for loss in losses if not any(_beats(other, loss) for other in losses)}
        fronts.append([standing for standing, loss in left if loss in unbeaten])
        left = [(standing, loss) for standing, loss in left if loss not in unbeaten]
    return fronts


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(mine <= theirs for mine, theirs in zip(one, other, strict=True))


def _crowding(front: Sequence[Standing], objectives: Sequence[Objective]) -> list[float]:
    """How far the neighbours of each design are from one another, in parts of the whole span, over all objectives."""
    distances = [0.0] * len(front)
    for objective in objectives:
        losses = [objective.loss(standing) for standing in front]
        order = sorted(range(len(front)), key=losses.__getitem__)
        span = losses[order[-1]] - losses[order[0]]
        distances[order[0]] = distances[order[-1]] = math.inf
        if span > 0:
            for before, here, after in zip(order, order[1:], order[2:], strict=False):
                distances[here] += (losses[after] - losses[before]) / span
    return distances
