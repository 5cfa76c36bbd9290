"""The objectives that designs are judged by: which designs are on the Pareto front, and which are trained further."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from arrn.errors import ArrnError
from arrn.experiments.sweep import Standing

_KNOWN = "accuracy, accuracy@N for a resolution N, each (accuracy at each resolution), multiply-adds, parameters"


@dataclass(frozen=True)
class Objective:
    """A number that designs are judged by.

    Attributes:
        name: the name, such as "accuracy@16".
        highest: whether larger values are better.
        value: computes the number of a design.
    """

    name: str
    highest: bool
    value: Callable[[Standing], float]

    def loss(self, standing: Standing) -> float:
        """The value, or its negative where larger values are better: less is always better."""
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
        ArrnError: for an unknown name, or a resolution at which designs are not evaluated.
    """
    return tuple({objective.name: objective for objective in _read(text, resolutions)}.values())


def _read(text: str, resolutions: Sequence[int]) -> Iterator[Objective]:
    for name in (part.strip() for part in text.split(",")):
        if name == "each":
            yield from map(accuracy_at, resolutions)
        elif name.startswith("accuracy@"):
            number = name.removeprefix("accuracy@")
            if number not in map(str, resolutions):
                known = ", ".join(map(str, resolutions))
                raise ArrnError(f"the resolutions of this search are {known}; got {name!r:.80}")
            yield accuracy_at(int(number))
        else:
            found = next((each for each in (MEAN_ACCURACY, MULTIPLY_ADDS, PARAMETERS) if each.name == name), None)
            if found is None:
                raise ArrnError(f"the objectives are {_KNOWN}; got {name!r:.80}")
            yield found


def find_front(standings: Sequence[Standing], objectives: Sequence[Objective] = USUAL) -> list[Standing]:
    """The Pareto front, cheapest first: no other design is as good in every objective and better in one."""
    front = _fronts(standings, objectives)[0] if standings else []
    return sorted(front, key=lambda standing: (standing.multiply_adds, -standing.mean_accuracy))


def choose_best(standings: Sequence[Standing], count: int, objectives: Sequence[Objective] = USUAL) -> list[Standing]:
    """The `count` designs that are worth more training, by NSGA-II's rules.

    The Pareto front comes first, then the front of the remaining designs, and so on. Within a front, designs with the
    largest crowding distance come first, so the chosen designs spread over the trade-off between the objectives. The
    best design of each objective leads its front.
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
